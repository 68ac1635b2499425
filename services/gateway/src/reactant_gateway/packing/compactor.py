"""Asks workers to put their device memory in order when placements have changed what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final, final

import grpc.aio

from reactant_core.errors import clip
from reactant_core.logs import get_logger
from reactant_gateway.h2.grpc import HOP
from reactant_gateway.workers.handle import WorkerHandle
from reactant_proto import control_pb2

_SECONDS: Final = 60.0
_METADATA: Final = ((HOP[0].decode("ascii"), HOP[1].decode("ascii")),)

_log = get_logger(__name__)


@final
class Compactor:
    """Calls CompactMemory, a worker after the other, so that not all replicas of a model pause together."""

    def __init__(self, handles: Callable[[], Sequence[WorkerHandle]]) -> None:
        self._handles = handles
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, workers: Collection[str]) -> None:
        """Returns at once; workers that are being asked already are asked again."""
        self._pending.update(workers)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="compaction")

    async def close(self) -> None:
        """Asks nobody else."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._pending:
            name = min(self._pending)
            self._pending.remove(name)
            handle = next((handle for handle in self._handles() if handle.name == name), None)
            if handle is not None and handle.ready:
                await self._ask(handle)

    async def _ask(self, handle: WorkerHandle) -> None:
        request = control_pb2.CompactMemoryRequest()
        try:
            answer = await handle.control.CompactMemory(request, timeout=_SECONDS, metadata=_METADATA)
        except grpc.aio.AioRpcError as error:
            reason = clip(f"{error.code().name}: {error.details()}")
            _log.warning("compaction failed", worker=handle.name, reason=reason)
            return
        except grpc.aio.UsageError:
            return
        _log.info(
            "compacted", worker=handle.name, moved_bytes=answer.moved_bytes, summary=clip(answer.summary)
        )
