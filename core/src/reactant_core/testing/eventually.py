"""Waiting for a condition with patience instead of sleeping for luck."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


@overload
async def eventually(
    predicate: Callable[[], Awaitable[T]],
    timeout: float = ...,  # noqa: ASYNC109
    *,
    what: str | None = ...,
) -> T: ...
@overload
async def eventually(
    predicate: Callable[[], T],
    timeout: float = ...,  # noqa: ASYNC109
    *,
    what: str | None = ...,
) -> T: ...
async def eventually(
    predicate: Callable[[], Any],
    timeout: float = 10.0,  # noqa: ASYNC109
    *,
    what: str | None = None,
) -> Any:
    """Calls `predicate` (plain or async) until it gives something true, and returns that.

    An AssertionError raised by the predicate counts as not yet true.

    Args:
        predicate: asked again and again, at most 50 ms apart.
        timeout: seconds of patience.
        what: names the condition in the failure; the predicate's source otherwise.

    Raises:
        AssertionError: still not true after `timeout`; says the last value or the last failure.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        last: Any
        try:
            value = predicate()
            last = await value if inspect.isawaitable(value) else value
            if last:
                return last
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(predicate, timeout, what, last))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def eventually_sync(predicate: Callable[[], T], timeout: float = 10.0, *, what: str | None = None) -> T:
    """`eventually` for tests without an event loop."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        last: Any
        try:
            last = predicate()
            if last:
                return last  # type: ignore[no-any-return]
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(predicate, timeout, what, last))
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _failure(predicate: Callable[[], Any], timeout: float, what: str | None, last: Any) -> str:
    if what is None:
        try:
            what = inspect.getsource(predicate).strip()
        except (OSError, TypeError):
            what = repr(predicate)
    return f"not true within {timeout:g} s: {what}; last was {last!r}"
