"""What a simulation stands on: workers, the models that all of them serve, and delays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import final

from reactant_policy.simulate.catalogue import SimulatedModel


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """Equal workers, each of which serves every model, behind one gateway.

    Attributes:
        workers: names, sorted.
        models: by name.
        weight_budget_bytes: of one worker; 0: no limit.
        overhead_seconds: that a request spends outside of queues and devices, on its way back.
        timeout_seconds: after its arrival a request is given up; infinite: never.
        probe_seconds: between two looks of the gateway at the workers' counters.
        planning_seconds: between the decision to repack and the new placement in force.
    """

    workers: tuple[str, ...]
    models: Mapping[str, SimulatedModel]
    weight_budget_bytes: int = 0
    overhead_seconds: float = 0.0
    timeout_seconds: float = inf
    probe_seconds: float = 1.0
    planning_seconds: float = 0.1

    def __post_init__(self) -> None:
        if not self.workers or list(self.workers) != sorted(set(self.workers)):
            raise ValueError("the names of the workers must be at least one, different, and sorted")
        least = {"weight_budget_bytes": 0.0, "overhead_seconds": 0.0, "planning_seconds": 0.0}
        faults = [
            f"{name} is {getattr(self, name)}; accepted is {bound:g} or more"
            for name, bound in least.items()
            if not getattr(self, name) >= bound
        ]
        faults += [
            f"{name} is {getattr(self, name)}; accepted is a number over 0"
            for name in ("timeout_seconds", "probe_seconds")
            if not getattr(self, name) > 0
        ]
        if faults:
            raise ValueError("; ".join(faults))


def by_name(models: Iterable[SimulatedModel]) -> Mapping[str, SimulatedModel]:
    """Models by their names; ValueError when a name is there twice."""
    named: dict[str, SimulatedModel] = {}
    for model in models:
        if model.name in named:
            raise ValueError(f"model '{model.name}' is there twice")
        named[model.name] = model
    return MappingProxyType(named)
