"""The helpers tests stand on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.testing import FakeClock, async_test, eventually, eventually_sync, free_port


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(10.0)
    protocol: Clock = clock
    assert (protocol.monotonic(), clock.advance(2.5), protocol.monotonic()) == (10.0, 12.5, 12.5)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_the_system_clock_does_not_go_back() -> None:
    times = [SYSTEM_CLOCK.monotonic() for _ in range(100)]
    assert times == sorted(times)


@async_test
async def test_eventually_gives_the_first_true_value() -> None:
    answers = iter([0, "", "found"])
    assert await eventually(lambda: next(answers)) == "found"
    flag = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, flag.set)

    async def is_set() -> bool:
        return flag.is_set()

    assert await eventually(is_set) is True


@async_test
async def test_eventually_counts_a_failed_assertion_as_not_yet() -> None:
    values = iter([1, 2, 3])

    def three() -> bool:
        assert next(values) == 3
        return True

    assert await eventually(three)


@async_test
async def test_eventually_gives_up_and_says_on_what() -> None:
    with pytest.raises(AssertionError, match=r"not true within 0\.02 s: the door opens; last was 0"):
        await eventually(lambda: 0, 0.02, what="the door opens")
    with pytest.raises(AssertionError, match="lambda: 0"):
        eventually_sync(lambda: 0, 0.02)


def test_eventually_lets_other_errors_out() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually_sync(lambda: 1 // 0)


def test_a_failing_async_test_fails() -> None:
    @async_test
    async def failing() -> None:
        raise AssertionError("as it should")

    with pytest.raises(AssertionError, match="as it should"):
        failing()


def test_a_free_port_can_be_bound() -> None:
    port = free_port()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", port))
