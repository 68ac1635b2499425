"""Work beside the event loop."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator

import pytest

from reactant_core.testing import async_test
from reactant_gateway.aside import CollectorPause, aside


@async_test
async def test_the_result_and_the_exception_come_through_from_another_thread() -> None:
    def work() -> Generator[None, None, threading.Thread]:
        yield
        return threading.current_thread()

    def broken() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    assert await aside(work) is not threading.main_thread()
    with pytest.raises(ValueError, match="no"):
        await aside(broken)


def test_the_collector_is_back_with_the_last_holder_only() -> None:
    pause = CollectorPause()
    with pause.held():
        with pytest.raises(ValueError, match="no"), pause.held():
            raise ValueError("no")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with CollectorPause().held():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
