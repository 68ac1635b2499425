"""Requests of metas: a thread for each, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from numpy.typing import NDArray

from reactant_core.clock import Clock
from reactant_core.errors import DeadlineExceeded
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.metas.call import Call
from reactant_worker.metas.lane import Lane
from reactant_worker.metas.scratch import Lease, ScratchPool
from reactant_worker.metas.stages import Stages
from reactant_worker.models.catalog import Catalog
from reactant_worker.models.hooks import RUN, HookRequest, RequestOver
from reactant_worker.models.served import ServedModel
from reactant_worker.models.steps import checked

_IDLE_SCRATCH_BYTES = 256 << 20
"""What the scratch pool keeps for later requests."""


@final
@dataclass(frozen=True, slots=True)
class MetaAnswer:
    """Client outputs by name, and the seconds the request waited for a thread."""

    outputs: Mapping[str, NDArray[Any]]
    queue_seconds: float


@final
class MetaRunner:
    """Runs metas on threads of their own: the hooks of the models they call run there too, and would
    deadlock with their callers on a pool that both shared.

    Args:
        catalog: where models are found.
        bridge: where their executions go.
        clock: monotonic time.
        concurrency: metas that call models and run at a time; the others wait.
        compute_threads: metas that call nothing and run at a time.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        bridge: EngineBridge,
        clock: Clock,
        concurrency: int,
        compute_threads: int,
    ) -> None:
        self._catalog = catalog
        self._bridge = bridge
        self._clock = clock
        self._calling = Lane(concurrency, "meta")
        self._computing = Lane(compute_threads, "meta-compute")
        self._scratch = ScratchPool(_IDLE_SCRATCH_BYTES)

    @property
    def running(self) -> int:
        """Metas that a thread is in."""
        return self._calling.running + self._computing.running

    def waiting(self, model: ServedModel) -> int:
        """Requests of a meta that have no thread yet."""
        return self._lane(model).waiting(model.key)

    @asynccontextmanager
    async def answer(
        self, model: ServedModel, tensors: Mapping[str, NDArray[Any]], request: HookRequest
    ) -> AsyncIterator[MetaAnswer]:
        """Runs a meta on client inputs; what it gives may lie in scratch buffers, valid inside the block.

        When the awaiting task is cancelled, the meta stops where its next stage would begin. Raises
        InvalidArgument when it or a model that it called refused the request, ModelUnavailable when
        such a model is not READY, DeadlineExceeded, and InternalError for anything else.
        """
        stages = Stages(self._catalog, self._bridge, asyncio.get_running_loop())
        lease = Lease(self._scratch)
        call = Call(model, request, stages=stages, lease=lease, clock=self._clock)
        arrived = self._clock.monotonic()
        try:
            job = partial(self._run, model, tensors, call, request, lease)
            ran = await self._lane(model).run(job, tag=model.key)
            if ran is None:
                raise DeadlineExceeded(f"model '{model.name}': the deadline passed")
            started, outputs = ran
            yield MetaAnswer(outputs, started - arrived)
        finally:
            stages.stop()
            lease.leave()

    def close(self) -> None:
        """Lets idle threads end, and busy ones after their meta."""
        self._calling.close()
        self._computing.close()

    def _lane(self, model: ServedModel) -> Lane:
        return self._calling if model.calls else self._computing

    def _run(
        self,
        model: ServedModel,
        tensors: Mapping[str, NDArray[Any]],
        call: Call,
        request: HookRequest,
        lease: Lease,
    ) -> tuple[float, dict[str, NDArray[Any]]] | None:
        """On a thread: when it began, and the client outputs; None when the request is over before."""
        if not lease.enter():
            return None
        try:
            started = self._clock.monotonic()
            assert model.hooks is not None
            returned = model.hooks.run_meta(tensors, call, request)
            return started, checked(model, RUN, returned, tuple(model.client_outputs.values()))
        except RequestOver:
            return None
        finally:
            lease.leave()
