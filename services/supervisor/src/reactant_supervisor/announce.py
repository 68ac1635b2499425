"""Tells people, and systemd, how far a start is and when requests can come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from reactant_core.logs import get_logger
from reactant_core.notify import Notifier
from reactant_core.progress import Progress

ASK_EVERY_SECONDS = 0.2
LINE_EVERY_SECONDS = 1.0
_NAMED_MODELS = 8

_log = get_logger(__name__)

Ask = Callable[[], Awaitable[Progress | None]]
"""A child's readiness; None while nothing answers."""


@final
@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of a server's model index."""

    name: str
    state: str


@final
class Announcer:
    """Follows each child's start; says once to systemd that the node is ready.

    The node is ready when its front is: the gateway or the lone worker, else every worker.
    """

    def __init__(
        self,
        asks: Mapping[str, Ask],
        *,
        front: str | None,
        address: str,
        list_models: Callable[[], Awaitable[Sequence[ModelEntry] | None]],
        notifier: Notifier,
        every_seconds: float = ASK_EVERY_SECONDS,
        line_every_seconds: float = LINE_EVERY_SECONDS,
    ) -> None:
        """Makes one for a node that has not been started.

        Args:
            asks: how each child says how far it is, by name.
            front: the child that clients reach; None when they reach each worker.
            address: where clients reach the node, as the ready line shows it.
            list_models: the front's model index, asked when it is ready; None when it cannot be had.
            notifier: systemd.
            every_seconds: how often to ask.
            line_every_seconds: least time between a child's progress lines.
        """
        self._asks = asks
        self._front = front
        self._address = address
        self._list_models = list_models
        self._notifier = notifier
        self._every = every_seconds
        self._line_every = line_every_seconds
        self._summaries: dict[str, str] = {}
        self._ready: set[str] = set()
        self._told = False

    @property
    def progress(self) -> Mapping[str, str]:
        """How far each child that runs was when it was last asked, by name."""
        return self._summaries

    async def follow(self, name: str) -> None:
        """Logs each step of a child's start until it is ready; cancelled when the child ends."""
        try:
            await self._until_ready(name)
            self._ready.add(name)
            self._set(name, "ready")
            await self._ready_line(name)
            await asyncio.Event().wait()
        finally:
            self._ready.discard(name)
            self._set(name, "down")

    async def node_ready(self) -> bool:
        """Whether the node serves now; asks."""
        names = [self._front] if self._front is not None else list(self._asks)
        answers = await asyncio.gather(*(self._asks[name]() for name in names))
        return all(answer is not None and answer.ready for answer in answers)

    async def _until_ready(self, name: str) -> None:
        now = asyncio.get_running_loop().time
        said, next_line = "", now()
        while True:
            progress = await self._asks[name]()
            if progress is not None and progress.ready:
                return
            if progress is not None and (summary := progress.summary()) != said and now() >= next_line:
                said, next_line = summary, now() + self._line_every
                self._set(name, summary)
                # What a gateway waits for its workers' lines say.
                if name != self._front or len(self._asks) == 1:
                    _log.info(f"{name}: {summary}{progress.time_left()}")
            await asyncio.sleep(self._every)

    async def _ready_line(self, name: str) -> None:
        if self._front is None:
            _log.info(f"{name}: ready")
            if len(self._ready) == len(self._asks):
                _log.info(f"ready: {self._address}")
                self._tell_ready()
            return
        if name != self._front:
            _log.info(f"{name}: ready")
            return
        self._tell_ready()
        # Why a model is not served its worker has said already.
        models = _served(await self._list_models())
        _log.info(f"ready: {self._address}{self._workers()}{models}")

    def _workers(self) -> str:
        others = [name for name in self._asks if name != self._front]
        if not others:
            return ""
        ready = sum(name in self._ready for name in others)
        return f"  workers: {ready} of {len(others)}" if ready < len(others) else f"  workers: {ready}"

    def _tell_ready(self) -> None:
        if not self._told:
            self._told = True
            self._notifier.ready()

    def _set(self, name: str, summary: str) -> None:
        if self._summaries.get(name) != summary:
            self._summaries[name] = summary
            self._notifier.status("; ".join(f"{name}: {text}" for name, text in self._summaries.items()))


def _served(models: Sequence[ModelEntry] | None) -> str:
    if models is None:
        return ""
    served = [model.name for model in models if model.state == "READY"]
    others = [model.name for model in models if model.state != "READY"]
    return f"  models: {_named(served)}" + (f"; not served: {_named(others)}" if others else "")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MODELS} more" if len(names) > _NAMED_MODELS else ""
    return f"{', '.join(names[:_NAMED_MODELS]) or 'none'}{more}"
