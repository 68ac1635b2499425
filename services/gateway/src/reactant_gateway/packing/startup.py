"""The wait before a gateway in `lpt_packing` serves: until its workers have compiled what they start with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from reactant_core.packing.catalogue import unfit
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.probe import SAYS_NOT_READY
from reactant_policy.routing.table import READY

SILENT_SECONDS: Final = 60.0
"""A worker of our own node that gives no sign of life for so long is not waited for any longer."""


class StartRefused(Exception):
    """The gateway must not serve as it is configured; the text says why, for people."""


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """How far a start is.

    Attributes:
        ready: workers that are.
        total: all workers.
        missing: by worker that is not ready, why.
        models_ready: models READY, over all workers.
        models_total: models that the workers tell of.
    """

    ready: int
    total: int
    missing: Mapping[str, str]
    models_ready: int
    models_total: int

    @property
    def state(self) -> str:
        """For `/readyz`."""
        return f"waiting for workers to compile, {self.ready} of {self.total} ready"


@final
class StartWait:
    """Decides when the wait is over. Pure: time and workers are told.

    Args:
        now: monotonic seconds, when the wait begins.
        limit_seconds: longest wait; None: as long as workers that are not ready give signs of life.
    """

    def __init__(self, now: float, limit_seconds: float | None) -> None:
        self._begun = now
        self._limit = limit_seconds
        self._heard: dict[str, float] = {}

    def over(self, now: float, workers: Sequence[WorkerHandle]) -> bool:
        """Whether to wait no longer.

        Raises:
            StartRefused: a worker runs a discipline that models cannot be packed with.
        """
        if wrong := unfit(worker.view for worker in workers):
            raise StartRefused("; ".join(wrong))
        waited_for = [worker for worker in workers if not worker.ready]
        if not waited_for:
            return True
        if self._limit is not None:
            return now - self._begun >= self._limit
        for worker in waited_for:
            if worker.reason == SAYS_NOT_READY:
                self._heard[worker.name] = now
        return all(now - self._heard.get(worker.name, self._begun) >= SILENT_SECONDS for worker in waited_for)


def progress(workers: Sequence[WorkerHandle]) -> Waiting:
    """How far `workers` are."""
    models = [model for worker in workers for model in worker.view.models.values()]
    return Waiting(
        sum(1 for worker in workers if worker.ready),
        len(workers),
        {worker.name: worker.reason for worker in workers if not worker.ready},
        sum(1 for model in models if model.state == READY),
        len(models),
    )
