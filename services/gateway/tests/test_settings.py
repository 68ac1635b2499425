"""What a gateway refuses, and what it says of settings that do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.config.gateway import load_gateway_config
from reactant_gateway.settings import Reload, refused, without_effect

SCHEDULING = "REACTANT_GATEWAY_SCHEDULING_"


def notes(**scheduling: str) -> list[str]:
    """The keys named for these variables of the scheduling."""
    environ = {SCHEDULING + key.upper(): value for key, value in scheduling.items()}
    environ |= {"REACTANT_GATEWAY_WORKERS": "a:1"}
    effective = load_gateway_config(environ, default_file=Path("/nonexistent"))
    assert refused(effective.value) == []
    return [note.split(" = ")[0].removeprefix("scheduling.") for note in without_effect(effective)]


def test_settings_of_another_mode_do_nothing() -> None:
    assert notes() == []
    assert notes(mode="least_outstanding", work_basis="items") == []
    assert notes(work_basis="items", default_replicas="1") == ["work_basis", "default_replicas"]
    assert notes(mode="least_outstanding", hysteresis="0.2", compaction_mode="off") == [
        "hysteresis",
        "compaction_mode",
    ]


def test_settings_of_the_packing_that_others_make_pointless() -> None:
    assert notes(mode="lpt_packing", default_replicas="1", work_basis="items") == []
    assert notes(mode="lpt_packing", routing_policy="fill_rr", work_basis="items") == ["work_basis"]
    assert notes(mode="lpt_packing", compaction_mode="off", compaction_interval="2") == [
        "compaction_interval"
    ]
    assert notes(mode="lpt_packing", compaction_mode="scheduled") == ["compaction_mode"]
    assert notes(mode="lpt_packing", routing_fill_mode="spread", routing_fill_factor="2") == [
        "routing_fill_factor"
    ]
    assert notes(mode="lpt_packing", routing_fill_mode="inflight", routing_fill_factor="2") == []


def test_of_single_models_too(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(
        "endpoints: [a:1]\nstartup_wait_seconds: 5\nscheduling: {models: {m: {replicas: 1}}}\n",
        encoding="utf-8",
    )
    found = without_effect(load_gateway_config({}, gateway_file=path))
    assert sorted(note.split(" (")[0] for note in found) == [
        "scheduling.models.m.replicas = 1",
        "startup_wait_seconds = 5.0",
    ]


def test_a_reload_that_the_workers_do_not_allow_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text("endpoints: [a:1]\n", encoding="utf-8")
    monkeypatch.setenv("REACTANT_GATEWAY_FILE", str(path))
    followed: list[str] = []
    why = ["w3 runs scheduler.discipline fair"]
    reload = Reload(
        load_gateway_config({}, gateway_file=path).value,
        lambda config: followed.append(config.scheduling.mode),
        lambda config: why if config.scheduling.mode == "lpt_packing" else [],
    )
    path.write_text("endpoints: [a:1]\nscheduling: {mode: lpt_packing}\n", encoding="utf-8")
    reload()
    assert followed == []
    assert "reload refused, the configuration in force stays: w3 runs" in caplog.text
    why.clear()
    reload()
    assert followed == ["lpt_packing"]
