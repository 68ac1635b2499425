"""Tests written as coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import uvloop

P = ParamSpec("P")


def async_test(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Runs the coroutine function `test` on a new uvloop event loop, fixtures and all."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    return run
