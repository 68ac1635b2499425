"""Tells people how far a start is, and when requests can come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import final

from reactant_core.logs import get_logger
from reactant_core.progress import Progress

ASK_EVERY_SECONDS = 0.2
LINE_EVERY_SECONDS = 1.0
_NAMED_MODELS = 8

_log = get_logger(__name__)


@final
@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of a server's model index."""

    name: str
    state: str


async def announce_ready(
    name: str,
    address: str,
    ask: Callable[[], Awaitable[Progress | None]],
    list_models: Callable[[], Awaitable[Sequence[ModelEntry] | None]],
    *,
    every_seconds: float = ASK_EVERY_SECONDS,
    line_every_seconds: float = LINE_EVERY_SECONDS,
) -> None:
    """Logs each step of `name`'s start, then one line with `address` and the models; ends there.

    Args:
        name: the child, for the progress lines.
        address: where clients reach it, as the ready line shows it.
        ask: the child's readiness; None while nothing answers.
        list_models: the model index, asked once, when ready; None when it cannot be had.
        every_seconds: how often to ask.
        line_every_seconds: least time between progress lines.
    """
    now = asyncio.get_running_loop().time
    said, next_line = "", now()
    while True:
        progress = await ask()
        if progress is not None and progress.ready:
            break
        if progress is not None and (summary := progress.summary()) != said and now() >= next_line:
            said, next_line = summary, now() + line_every_seconds
            _log.info(f"{name}: {summary}{progress.time_left()}")
        await asyncio.sleep(every_seconds)
    # Why a model is not served its worker has said already.
    _log.info(f"ready: {address}{_served(await list_models())}")


def _served(models: Sequence[ModelEntry] | None) -> str:
    if models is None:
        return ""
    served = [model.name for model in models if model.state == "READY"]
    others = [model.name for model in models if model.state != "READY"]
    return f"  models: {_named(served)}" + (f"; not served: {_named(others)}" if others else "")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MODELS} more" if len(names) > _NAMED_MODELS else ""
    return f"{', '.join(names[:_NAMED_MODELS]) or 'none'}{more}"
