"""Long computations beside the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_SWITCH_SECONDS: Final = 0.0005


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, computed in a thread that gives way to the event loop ten times as often as usual.

    Python code in another thread holds the interpreter for up to `sys.getswitchinterval()`, by default 5 ms,
    each time the loop wakes up. A process of its own would cost more to tell than most plans cost to make.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_SECONDS))
    try:
        return await asyncio.to_thread(work)
    finally:
        sys.setswitchinterval(before)
