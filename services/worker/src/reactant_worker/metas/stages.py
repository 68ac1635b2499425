"""The bridge from a meta's thread to the event loop, where models are found and the engine is asked."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar, final

from reactant_core.errors import DeadlineExceeded, InternalError, ModelUnavailable
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Completed, Submission
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.hooks import RequestOver
from reactant_worker.models.served import ServedModel

T = TypeVar("T")


@final
class Stages:
    """The stages of one request of a meta, one at a time.

    `begin`, `execute` and `finish` are called on the meta's thread, the first two block; `stop` is called on
    the event loop. A model is held, so that a reload waits, from `begin` to `finish`, or to `stop`.
    """

    def __init__(self, catalog: Catalog, bridge: EngineBridge, loop: asyncio.AbstractEventLoop) -> None:
        self._catalog = catalog
        self._bridge = bridge
        self._loop = loop
        self._held: tuple[Entry, ServedModel] | None = None
        self._executing: asyncio.Task[Any] | None = None
        self.stopped = False

    def begin(self, name: str) -> ServedModel:
        """The version of a model that serves now, held.

        Raises ModelUnavailable, InternalError for a meta, RequestOver after `stop`.
        """
        return self._ask(lambda: self._hold(name))

    def execute(self, submission: Submission) -> Completed:
        """Runs a submission of the held model. Raises as the engine does, RequestOver after `stop`."""
        execution = self._execute(submission)
        try:
            running = asyncio.run_coroutine_threadsafe(execution, self._loop)
        except RuntimeError:  # the loop is closed
            execution.close()
            raise RequestOver from None
        return running.result()

    def finish(self) -> None:
        """Ends the stage."""
        self._tell(self._release)

    def stop(self) -> None:
        """Ends the request: what waits for the device is taken out, and no further stage begins."""
        self.stopped = True
        if self._executing is not None:
            self._executing.cancel()
        self._release()

    def _hold(self, name: str) -> ServedModel:
        if self.stopped:
            raise RequestOver
        entry = self._catalog.get(name)
        if entry is None:
            raise ModelUnavailable(f"model '{name}' is not there")
        model = entry.ready_model()
        if model.meta:
            raise InternalError(f"model '{name}' is a meta; a meta calls models only")
        entry.hold(model)
        self._held = (entry, model)
        return model

    async def _execute(self, submission: Submission) -> Completed:
        if self.stopped or self._held is None:
            raise RequestOver
        entry, _ = self._held
        self._executing = asyncio.current_task()
        try:
            completed = await self._bridge.run(submission)
        except (asyncio.CancelledError, DeadlineExceeded):
            raise RequestOver from None
        finally:
            self._executing = None
        entry.counters.executed(completed)
        return completed

    def _release(self) -> None:
        if self._held is not None:
            entry, model = self._held
            self._held = None
            entry.release(model)

    def _ask(self, function: Callable[[], T]) -> T:
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def ask() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        if not self._tell(ask):
            raise RequestOver
        return answer.result()

    def _tell(self, function: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            return False
        return True
