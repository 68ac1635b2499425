"""What a placement is made of, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, final

Homes: TypeAlias = Mapping[str, tuple[str, ...]]
"""The workers of each model, sorted."""

Reason: TypeAlias = Literal["lost", "replicas", "balance"]

NO_HOMES: Homes = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class ModelDemand:
    """A model that wants a place; ValueError names what is wrong with it.

    Attributes:
        name: the model.
        compute: device-seconds per second, over all of its replicas.
        weight_bytes: what every replica holds on its device.
        eligible: workers that can take it, sorted; none: it gets no home.
        pinned: those of `eligible` that come first, sorted.
        replicas: workers wanted, at least 1; None: every eligible one.
    """

    name: str
    compute: float
    weight_bytes: int
    eligible: tuple[str, ...]
    pinned: tuple[str, ...] = ()
    replicas: int | None = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.compute) and self.compute >= 0):
            raise ValueError(f"{self.name}: compute must be a number of at least 0, not {self.compute}")
        if self.weight_bytes < 0:
            raise ValueError(f"{self.name}: weight_bytes must be at least 0, not {self.weight_bytes}")
        if self.replicas is not None and self.replicas < 1:
            raise ValueError(f"{self.name}: replicas must be at least 1 or None, not {self.replicas}")


@final
@dataclass(frozen=True, slots=True)
class WorkerRoom:
    """A worker that models can be placed on; its device offers one device-second per second.

    Attributes:
        name: the worker.
        weight_budget_bytes: what its device has for weights; 0: unconstrained.
    """

    name: str
    weight_budget_bytes: int = 0

    def __post_init__(self) -> None:
        if self.weight_budget_bytes < 0:
            raise ValueError(
                f"{self.name}: weight_budget_bytes must be at least 0, not {self.weight_budget_bytes}"
            )


@final
@dataclass(frozen=True, slots=True)
class Knobs:
    """How a placement is chosen; ValueError for a hysteresis outside of [0, 1).

    Attributes:
        hysteresis: share of a pressure that has to be gained before a model leaves its home.
        forbid_memory_oversubscription: no worker gets more bytes than its budget while there is a way
            around it that is found.
    """

    hysteresis: float = 0.1
    forbid_memory_oversubscription: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis must be in [0, 1), not {self.hysteresis}")


@final
@dataclass(frozen=True, slots=True)
class Pressure:
    """How full a worker is, as shares of what it has; more than 1 is too much.

    Attributes:
        compute: device-seconds per second.
        memory: bytes of its models ÷ its budget; 0 where that is unconstrained.
    """

    compute: float
    memory: float

    @property
    def worst(self) -> float:
        """The larger of the two: what a placement is judged by."""
        return max(self.compute, self.memory)


@final
@dataclass(frozen=True, slots=True)
class Move:
    """A model that had a home and has another.

    Attributes:
        model: its name.
        gone: workers that it leaves, sorted.
        new: workers that it comes to, sorted.
        bytes: its weights, once for each of `new`.
        reason: "lost": a worker that it leaves cannot have it any more; "replicas": more or fewer are wanted;
            "balance": there was more to gain than the hysteresis, or a full worker to relieve.
    """

    model: str
    gone: tuple[str, ...]
    new: tuple[str, ...]
    bytes: int
    reason: Reason


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """A placement, and how it came about.

    Attributes:
        homes: by model; one that no worker can take is absent.
        moves: what differs from before, by name; a model that had no home before is no move.
        placed: models with a home.
        held: models that stay although another worker would have less pressure.
        best_gain: the largest share of a pressure that a change had to offer, taken or not.
        bytes_moved: of all moves.
        imbalance_before: worst compute share ÷ mean compute share, of the homes before as far as they still
            exist, under the demand of now; 1 is even, 0 is no demand.
        imbalance_after: the same of `homes`.
        pressure: by worker.
        weights: share of a worker's compute that a model has, by (model, worker), for every home; 0 on a
            worker without demand.
        warnings: what an operator should know, sorted: too many replicas, no worker, memory oversubscribed.
    """

    homes: Homes
    moves: tuple[Move, ...] = ()
    placed: int = 0
    held: int = 0
    best_gain: float = 0.0
    bytes_moved: int = 0
    imbalance_before: float = 0.0
    imbalance_after: float = 0.0
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    weights: Mapping[tuple[str, str], float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
