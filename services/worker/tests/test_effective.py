from __future__ import annotations

from pathlib import Path

from reactant_core.config import load_worker_config
from reactant_worker.effective import refused, without_effect


def test_defaults_are_followed_or_say_nothing() -> None:
    effective = load_worker_config({})
    assert refused(effective) == []
    assert without_effect(effective) == []


def test_what_cannot_be_honoured_is_refused() -> None:
    effective = load_worker_config({"INFERENCE_SERVER_RUNTIME_NUMERICS": "f32"})
    assert refused(effective) == ["runtime.numerics = f32 is not offered by this version; use auto"]


def test_settings_without_effect_are_named_with_their_source() -> None:
    effective = load_worker_config(
        {
            "INFERENCE_SERVER_RUNTIME_SHARED_HOST_WEIGHTS": "true",
            "INFERENCE_SERVER_SCHEDULER_COMPACTION_INTERVAL": "5",
            "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH": "7",
        }
    )
    assert sorted(without_effect(effective)) == [
        "runtime.shared_host_weights = true (INFERENCE_SERVER_RUNTIME_SHARED_HOST_WEIGHTS) "
        "has no effect in this version",
        "scheduler.compaction_interval = 5 (INFERENCE_SERVER_SCHEDULER_COMPACTION_INTERVAL) "
        "has no effect in this version",
    ]


def test_scheduling_and_its_terms_for_each_model_are_followed(tmp_path: Path) -> None:
    node = tmp_path / "node.yaml"
    node.write_text(
        "global: {model_poll_seconds: 1, scheduler: {discipline: edf, ema_halflife_seconds: 5, "
        "recency_penalty_cap: 0.5, coalescing_discount: 0.2, models: "
        "{m: {weight: 3, residency: device, max_batch_size: 4, max_queue_delay_ms: 2}}}}\n"
    )
    assert without_effect(load_worker_config({}, node_file=node)) == []
