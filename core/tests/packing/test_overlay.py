"""Changes made while running: all or nothing, and kept until the configuration itself changes."""

from __future__ import annotations

from typing import Any

import pytest

from reactant_core.config.gateway_sections import ModelRoutingConfig, SchedulingConfig
from reactant_core.errors import InvalidArgument
from reactant_core.packing.overlay import Overlay


def test_changes_lie_over_the_configuration() -> None:
    overlay = Overlay(SchedulingConfig(hysteresis=0.2, models={"m": ModelRoutingConfig(fill_factor=2.0)}))
    overlay.set_policy({"default_replicas": "2", "routing_fill_mode": "spread", "hysteresis": 0})
    overlay.set_model("m", {"replicas": "all"})
    overlay.set_model("n", {"fill_mode": "inflight"})
    value = overlay.value
    assert (value.default_replicas, value.routing_fill_mode, value.hysteresis) == (2, "spread", 0)
    assert value.models == {
        "m": ModelRoutingConfig(replicas="all", fill_factor=2.0),
        "n": ModelRoutingConfig(fill_mode="inflight"),
    }


def test_every_fault_is_named_and_nothing_changed() -> None:
    overlay = Overlay(SchedulingConfig())
    given: dict[str, Any] = {
        "hysteresi": 0.5,
        "rebalance_compute_seconds": -1,
        "mode": "lpt",
        "default_replicas": 0,
        "compaction_interval": True,
        "forbid_memory_oversubscription": None,
        "models": {},
        "routing_policy": "fill_rr",
    }
    with pytest.raises(InvalidArgument) as caught:
        overlay.set_policy(given)
    text = str(caught.value)
    assert all(key in text for key in given if key != "routing_policy")
    assert "routing_policy" not in text
    assert "did you mean hysteresis?" in text
    assert "accepted is a number above 0 up to 1000000000" in text
    assert overlay.value == SchedulingConfig()


def test_every_fault_of_a_model_is_named_and_nothing_changed() -> None:
    overlay = Overlay(SchedulingConfig())
    with pytest.raises(InvalidArgument, match=r"model 'm'.*replicas = -1.*fill_mode = 'x'.*fill_factor = 0"):
        overlay.set_model("m", {"replicas": -1, "fill_mode": "x", "fill_factor": 0})
    assert overlay.value == SchedulingConfig()


def test_nothing_to_change_is_a_fault() -> None:
    overlay = Overlay(SchedulingConfig())
    with pytest.raises(InvalidArgument, match="nothing to change; known are mode, work_basis"):
        overlay.set_policy({})
    with pytest.raises(InvalidArgument, match="nothing to change; known are replicas"):
        overlay.set_model("m", {})


def test_a_configuration_read_anew_replaces_what_it_changes_itself() -> None:
    overlay = Overlay(SchedulingConfig(models={"m": ModelRoutingConfig(replicas=1)}))
    overlay.set_policy({"default_replicas": 2, "hysteresis": 0.5})
    overlay.set_model("m", {"replicas": 3, "fill_mode": "spread"})
    overlay.set_model("n", {"replicas": 3})
    base = SchedulingConfig(default_replicas=4, models={"m": ModelRoutingConfig(replicas=5)})
    assert overlay.rebase(base) == ("default_replicas", "models.m.replicas")
    value = overlay.value
    assert (value.default_replicas, value.hysteresis) == (4, 0.5)
    assert value.models["m"] == ModelRoutingConfig(replicas=5, fill_mode="spread")
    assert value.models["n"] == ModelRoutingConfig(replicas=3)
    assert overlay.rebase(base) == ()
    assert overlay.value == value
