"""What a gateway's scheduling looks like at one moment: values for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_policy.placement.packing import Repack


@final
@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker.

    Attributes:
        name: the worker.
        ready: it gets requests.
        discipline: as it reports it: fair, fifo or edf; empty while it is not known.
        homes: models placed on it; outside of `lpt_packing` those it has READY.
        compute: device-seconds per second that the demand of these takes; 1 is all of it.
        memory_bytes: their weights.
        memory_budget_bytes: device memory that weights may fill; 0: no limit.
        memory: weights as a share of the budget; 0 without one.
        in_flight: requests sent to it and not answered.
    """

    name: str
    ready: bool
    discipline: str
    homes: int
    compute: float
    memory_bytes: int
    memory_budget_bytes: int
    memory: float
    in_flight: int


@final
@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model.

    Attributes:
        name: the model.
        replicas: workers it is to be on; None: all that have it.
        homes: workers it is placed on, sorted; outside of `lpt_packing` those that have it READY.
        eligible: available workers that have it READY, sorted.
        demand: device-seconds per second of all its replicas together.
        seconds_per_item: measured device time of an item; None before the first measurement.
        weight_bytes: of one replica.
        fill_mode: run, spread or inflight.
        fill_factor: of the quantum.
        quantum: items of a run.
        in_flight: requests sent to its replicas and not answered.
        own: it has settings of its own.
    """

    name: str
    replicas: int | None
    homes: tuple[str, ...]
    eligible: tuple[str, ...]
    demand: float
    seconds_per_item: float | None
    weight_bytes: int
    fill_mode: str
    fill_factor: float
    quantum: float
    in_flight: int
    own: bool


@final
@dataclass(frozen=True, slots=True)
class SchedulingStatus:
    """The scheduling of one gateway.

    Attributes:
        policy: the settings in force, `mode` among them, with changes made while running; `models` too.
        workers: every worker, sorted by name.
        models: every model that some worker has, or that has settings of its own, sorted by name.
        placed: there is a placement in force (`lpt_packing`).
        last: the last repack; None before the first and outside of `lpt_packing`.
        last_seconds_ago: since it was put in force, seconds; 0 without one.
        repacks: how many there were, by trigger.
        next_compute_seconds: device time of the fleet left until the next; None outside of `lpt_packing`.
        persisted: changes outlast this process (a registry keeps them).
        warnings: what an operator should know of, a sentence each.
    """

    policy: SchedulingConfig
    workers: tuple[WorkerStatus, ...]
    models: tuple[ModelStatus, ...]
    placed: bool
    last: Repack | None
    last_seconds_ago: float
    repacks: dict[str, int]
    next_compute_seconds: float | None
    persisted: bool
    warnings: tuple[str, ...]
