"""One call to several workers, none of which can hold up the answer of the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import grpc.aio

from reactant_core.errors import (
    DeadlineExceeded,
    ModelNotFound,
    ModelUnavailable,
    ServingError,
    error_from_status,
)
from reactant_gateway.h2.grpc import HOP
from reactant_gateway.workers.handle import WorkerHandle

PATIENCE_SECONDS: Final = 2.0
"""Longest wait for the other workers once one has answered, and for one before the next is asked too."""

Service = Literal["inference", "control"]

_METADATA: Final = ((HOP[0].decode("ascii"), HOP[1].decode("ascii")),)
_CLOSED: Final = "the connection was closed"


@final
@dataclass(slots=True)
class Answers:
    """What came back, by worker, in the order in which they were given."""

    good: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, ServingError] = field(default_factory=dict)


async def ask(
    worker: WorkerHandle, rpc: str, request: Any, seconds: float | None, service: Service = "inference"
) -> Any:
    """The response of one worker, or the error in its place; never raises one that has a status.

    `seconds` is the longest it may take, None for as long as the caller waits.
    """
    stub = worker.control if service == "control" else worker.inference
    method: Callable[..., Any] = getattr(stub, rpc)
    try:
        return await method(request, timeout=seconds, metadata=_METADATA)
    except grpc.aio.AioRpcError as error:
        return error_from_status(error.code(), error.details() or "", error.trailing_metadata() or ())
    except grpc.aio.UsageError:
        return ModelUnavailable(_CLOSED)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not we were cancelled but the call, by a channel that was closed under it.
        return ModelUnavailable(_CLOSED)


async def ask_all(
    workers: Iterable[WorkerHandle],
    rpc: str,
    request: Any,
    *,
    seconds: float | None,
    patience: float | None = None,
    enough: Callable[[Any], bool] = lambda _: False,
    service: Service = "inference",
) -> Answers:
    """Asks all `workers` at once.

    Args:
        workers: each is asked once.
        rpc: method of `service`.
        request: its message.
        seconds: longest wait for a worker; None: as long as the caller waits.
        patience: longest wait for the rest after the first response; None: `seconds`.
        enough: ends the wait when a response satisfies it.
        service: KServe V2's, or the workers' own ControlService.
    """
    loop = asyncio.get_running_loop()
    tasks = {worker.name: loop.create_task(ask(worker, rpc, request, seconds, service)) for worker in workers}
    pending = set(tasks.values())
    limit: float | None = None
    try:
        while pending:
            left = None if limit is None else max(0.0, limit - loop.time())
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            responses = [one.result() for one in done if not isinstance(one.result(), ServingError)]
            if not done or any(map(enough, responses)):
                break
            if responses and limit is None and patience is not None:
                limit = loop.time() + patience
    finally:
        for task in pending:
            task.cancel()
    answers = Answers()
    for name, task in tasks.items():
        if task in pending:
            answers.failed[name] = DeadlineExceeded(f"no answer within {patience or 0:g} s of the first")
        elif isinstance(result := task.result(), ServingError):
            answers.failed[name] = result
        else:
            answers.good[name] = result
    return answers


async def ask_first(
    workers: Iterable[WorkerHandle], rpc: str, request: Any, *, seconds: float | None, patience: float
) -> Any:
    """The first response of `workers`, asked in turn.

    The next is asked when one fails, and also when none has answered for `patience` seconds; the earlier
    ones may still answer. Raises the error that tells most when all fail.
    """
    loop = asyncio.get_running_loop()
    left = deque(workers)
    running: set[asyncio.Task[Any]] = set()
    failed: list[ServingError] = []
    try:
        while left or running:
            if left:
                running.add(loop.create_task(ask(left.popleft(), rpc, request, seconds)))
            done, running = await asyncio.wait(
                running, timeout=patience if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if not isinstance(task.result(), ServingError):
                    return task.result()
                failed.append(task.result())
    finally:
        for task in running:
            task.cancel()
    raise most_telling(failed)


def most_telling(errors: Iterable[ServingError]) -> ServingError:
    """Of several workers' errors the one to pass on.

    What a worker says of its model comes before "cannot be reached", and NOT_FOUND comes last: it is true
    only when all say it.
    """

    def rank(error: ServingError) -> int:
        if isinstance(error, ModelNotFound):
            return 3
        if isinstance(error, ModelUnavailable) and error.not_started:
            return 1
        return 2 if isinstance(error, ModelUnavailable | DeadlineExceeded) else 0

    return min(errors, key=rank, default=ModelUnavailable("no worker is ready"))


def combined(failed: Mapping[str, ServingError], asked: int) -> ServingError:
    """One error for what failed on some of the `asked` workers: the status of the first, every name.

    When all failed alike it is their error as it came.
    """
    first = next(iter(failed.values()))
    alike = all((error.code, error.message) == (first.code, first.message) for error in failed.values())
    if alike and len(failed) == asked:
        return first
    told = "; ".join(f"{worker}: {error.message}" for worker, error in failed.items())
    return type(first)(f"{len(failed)} of {asked} workers failed: {told}", trailers=first.trailers)
