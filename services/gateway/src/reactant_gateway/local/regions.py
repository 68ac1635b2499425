"""Shared-memory regions registered through the gateway: a book of them, kept on every worker of this host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, final

from reactant_core.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    ModelUnavailable,
    ServingError,
)
from reactant_core.kserve.shm import SHM, open_shared
from reactant_core.kserve.surface import unknown_region
from reactant_core.logs import get_logger
from reactant_gateway.local.fanout import ask, combined
from reactant_gateway.workers.handle import WorkerHandle
from reactant_proto import inference_pb2 as pb

_log = get_logger(__name__)
T = TypeVar("T")

CALL_SECONDS: Final = 5.0
"""Longest wait for a worker to register or forget one region."""

_NOWHERE: Final[frozenset[str]] = frozenset()
_LOST: Final = (ModelUnavailable, DeadlineExceeded)


@final
@dataclass(frozen=True, slots=True)
class Region:
    """`size` bytes at `offset` of the object `key`.

    Attributes:
        identity: device and inode of the object as it was registered; None where this process cannot
            open it.
    """

    name: str
    key: str
    offset: int
    size: int
    identity: tuple[int, int] | None = None

    def request(self) -> pb.SystemSharedMemoryRegisterRequest:
        """What registers it."""
        return pb.SystemSharedMemoryRegisterRequest(
            name=self.name, key=self.key, offset=self.offset, byte_size=self.size
        )

    def is_told_by(self, status: pb.SystemSharedMemoryStatusResponse) -> bool:
        """A worker's status has it just so."""
        if self.name not in status.regions:
            return False
        told = status.regions[self.name]
        return (told.key, told.offset, told.byte_size) == (self.key, self.offset, self.size)


@final
class RegionBook:
    """Regions by name, and the workers that hold each. Used on the event loop only.

    Registering and unregistering go to every worker of this host, one at a time, and are finished once
    begun, also when the client has gone. A worker out of reach gets what it missed by `replay`.
    """

    def __init__(
        self,
        workers: Callable[[], Sequence[WorkerHandle]],
        lost: Callable[[str, str], None],
        *,
        call_seconds: float = CALL_SECONDS,
        root: Path = SHM,
    ) -> None:
        """`lost(worker, reason)` is told of a worker that turns out not to be reachable."""
        self._workers = workers
        self._lost = lost
        self._call_seconds = call_seconds
        self._root = root
        self._regions: dict[str, Region] = {}
        self._holders: dict[str, frozenset[str]] = {}
        # Workers whose replay is done and who have not been lost since: to be told though not yet ready.
        self._replayed: set[str] = set()
        # Names a worker may still hold because it was out of reach when they were unregistered.
        self._missed: dict[str, set[str]] = {}
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions.values())

    def get(self, name: str, what: str = "") -> Region:
        """A region by name; ModelNotFound with the trailer of regions for an unknown one."""
        region = self._regions.get(name)
        if region is None:
            raise unknown_region(name, what)
        return region

    def holders(self, name: str) -> frozenset[str]:
        """Names of the workers that hold a region; none for an unknown one."""
        return self._holders.get(name, _NOWHERE)

    async def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Registers a region on all workers of this host, or on none.

        Raises AlreadyExists for a name that is taken, FailedPrecondition without a worker on this host,
        ModelUnavailable when none of them can be reached, and what the workers say of key and range.
        """
        await self._to_its_end(self._register(name, key, offset, size))

    async def unregister(self, name: str) -> None:
        """Forgets a region, every region for an empty name; an unknown one is no error."""
        await self._to_its_end(self._unregister(name))

    async def replay(self, worker: WorkerHandle) -> None:
        """Brings a worker that comes back to what the book says; for discovery's `before_admission`.

        A region that it cannot have any more is logged and left out of what it holds. One that cannot be
        reached after all is given to `lost`.
        """
        if worker.endpoint.same_host:
            await self._to_its_end(self._replay(worker))

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone

    async def _register(self, name: str, key: str, offset: int, size: int) -> None:
        async with self._lock:
            if not name:
                # Not the workers' to say: the roll-back of an empty name would forget all regions.
                raise InvalidArgument("a shared-memory region needs a name")
            if name in self._regions:
                raise AlreadyExists(f"shared-memory region '{name}' is already registered")
            region = Region(name, key, offset, size)
            workers = self._told()
            errors = await self._each(workers, lambda worker: self._place(worker, region))
            good = [worker for worker in workers if worker.name not in errors]
            unreached, failed = self._sort(workers, errors)
            if failed:
                doubtful = [w for w in workers if isinstance(errors.get(w.name), _LOST)]
                await self._forget([*good, *doubtful], name)
                raise combined(failed, len(workers) - len(unreached))
            if not good:
                raise ModelUnavailable("no worker on this host can be reached")
            self._regions[name] = Region(name, key, offset, size, self._identity(key))
            self._holders[name] = frozenset(worker.name for worker in good)

    async def _unregister(self, name: str) -> None:
        async with self._lock:
            for gone in [name] if name else list(self._regions):
                if self._regions.pop(gone, None) is not None:
                    for worker in self._holders.pop(gone):
                        self._missed.setdefault(worker, set()).add(gone)
            workers = self._told(required=False)
            failed = await self._forget(workers, name)
            if failed:
                raise combined(failed, len(workers))

    async def _replay(self, worker: WorkerHandle) -> None:
        async with self._lock:
            error = await self._bring_up(worker)
            if error is None:
                self._missed.pop(worker.name, None)
                self._replayed.add(worker.name)
            else:
                self._replayed.discard(worker.name)
                self._lost(worker.name, f"shared-memory regions not replayed: {error.message}")

    async def _bring_up(self, worker: WorkerHandle) -> ServingError | None:
        """Makes a worker hold what the book says; an error when it could not be reached."""
        missed = [name for name in self._missed.get(worker.name, ()) if name not in self._regions]
        if not self._regions and not missed:
            return None
        request = pb.SystemSharedMemoryStatusRequest()
        status = await ask(worker, "SystemSharedMemoryStatus", request, self._call_seconds)
        if isinstance(status, _LOST):
            return status
        if isinstance(status, ServingError):
            _log.warning("a worker has no shared memory", worker=worker.name, reason=status.message)
            status = pb.SystemSharedMemoryStatusResponse()
        for name in missed:
            if name in status.regions and isinstance(error := await self._drop(worker, name), _LOST):
                return error
        for region in self:
            if isinstance(error := await self._restore(worker, region, status), _LOST):
                return error
        return None

    async def _restore(
        self, worker: WorkerHandle, region: Region, status: pb.SystemSharedMemoryStatusResponse
    ) -> ServingError | None:
        others = self._holders[region.name] - {worker.name}
        if worker.name in self._holders[region.name] and region.is_told_by(status):
            return None
        self._holders[region.name] = others
        now = self._identity(region.key)
        error: ServingError | None
        if region.identity is not None and now is not None and now != region.identity:
            # Other workers hold the old object: one request would see one, the next the other.
            error = FailedPrecondition("the object was made anew since it was registered")
        else:
            error = await self._place(worker, region)
        if error is None:
            self._holders[region.name] = others | {worker.name}
        elif not isinstance(error, _LOST):
            _log.warning(
                "shared-memory region not replayed",
                worker=worker.name,
                region=region.name,
                reason=error.message,
            )
        return error

    def _told(self, *, required: bool = True) -> list[WorkerHandle]:
        """The workers that are told of a change; the others of this host get it by their replay."""
        here = [worker for worker in self._workers() if worker.endpoint.same_host]
        if required and not here:
            raise FailedPrecondition(
                "system shared memory needs a worker on the gateway's host; there is none"
            )
        return [worker for worker in here if worker.ready or worker.name in self._replayed]

    def _sort(
        self, workers: Iterable[WorkerHandle], errors: Mapping[str, ServingError]
    ) -> tuple[list[str], dict[str, ServingError]]:
        """Names of workers that could not be reached and will be replayed to, and the other errors."""
        unreached: list[str] = []
        failed: dict[str, ServingError] = {}
        for worker in workers:
            error = errors.get(worker.name)
            if error is None:
                continue
            if isinstance(error, ModelUnavailable):
                if worker.ready:
                    self._lost(worker.name, error.message)
            elif worker.ready or not isinstance(error, DeadlineExceeded):
                failed[worker.name] = error
                continue
            self._replayed.discard(worker.name)
            unreached.append(worker.name)
        return unreached, failed

    async def _forget(self, workers: Sequence[WorkerHandle], name: str) -> dict[str, ServingError]:
        """Takes a name, or all, from `workers`; those out of reach are noted. Returns other errors."""
        errors = await self._each(workers, lambda worker: self._drop(worker, name))
        for worker in workers:
            error = errors.get(worker.name)
            if error is None:
                missed = self._missed.get(worker.name, set())
                missed.difference_update([name] if name else list(missed))
            elif isinstance(error, _LOST) and name:
                self._missed.setdefault(worker.name, set()).add(name)
        _, failed = self._sort(workers, errors)
        return {name: error for name, error in failed.items() if not isinstance(error, _LOST)}

    async def _each(
        self,
        workers: Sequence[WorkerHandle],
        act: Callable[[WorkerHandle], Coroutine[Any, Any, ServingError | None]],
    ) -> dict[str, ServingError]:
        errors = await asyncio.gather(*(act(worker) for worker in workers))
        return {
            worker.name: error for worker, error in zip(workers, errors, strict=True) if error is not None
        }

    async def _place(self, worker: WorkerHandle, region: Region) -> ServingError | None:
        """Registers on one worker; the book decides what is taken, so what is left there is replaced."""
        error = await self._call(worker, "SystemSharedMemoryRegister", region.request())
        if isinstance(error, AlreadyExists):
            error = await self._drop(worker, region.name)
            if error is None:
                error = await self._call(worker, "SystemSharedMemoryRegister", region.request())
        return error

    async def _drop(self, worker: WorkerHandle, name: str) -> ServingError | None:
        request = pb.SystemSharedMemoryUnregisterRequest(name=name)
        return await self._call(worker, "SystemSharedMemoryUnregister", request)

    async def _call(self, worker: WorkerHandle, rpc: str, request: Any) -> ServingError | None:
        result = await ask(worker, rpc, request, self._call_seconds)
        return result if isinstance(result, ServingError) else None

    def _identity(self, key: str) -> tuple[int, int] | None:
        with suppress(OSError, ValueError):
            fd = open_shared(key, os.O_RDONLY, self._root)
            try:
                found = os.fstat(fd)
            finally:
                os.close(fd)
            return found.st_dev, found.st_ino
        return None
