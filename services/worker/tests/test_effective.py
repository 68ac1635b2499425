from __future__ import annotations

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
            "INFERENCE_SERVER_SCHEDULER_COMPACTION_INTERVAL": "5",
            "INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "edf",
            "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH": "7",
        }
    )
    notes = without_effect(effective)
    assert len(notes) == 2
    assert any("scheduler.discipline = edf (INFERENCE_SERVER_SCHEDULER_DISCIPLINE)" in n for n in notes)
    assert any("scheduler.compaction_interval = 5" in n for n in notes)
    assert not without_effect(load_worker_config({"INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "fifo"}))
