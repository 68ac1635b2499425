"""Makes the fakes importable: they are a file of the checkout, not an installed package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
pytest.register_assert_rewrite("services.worker.tests.engine.fakes")

from services.worker.tests.engine.fakes import MODEL, TERMS, Device, Recorder, make_engine  # noqa: E402

from reactant_worker.engine.dispatcher import Dispatcher  # noqa: E402


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def engine(recorder: Recorder, device: Device) -> Iterator[Dispatcher]:
    """An engine with one model, `MODEL`, on `device`; nothing is known of what an execution takes."""
    made = make_engine(recorder)
    made.attach(MODEL, device, TERMS)
    made.start()
    yield made
    device.open()
    assert made.stop(10)
