"""A packer over a made-up fleet, with a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing.packer import Packer
from reactant_core.packing.steering import Steering
from reactant_core.testing import FakeClock, eventually
from reactant_gateway.router import Router
from reactant_policy.routing.spread import RoundRobin
from reactant_policy.routing.table import READY, ModelView, WorkerView, build_table
from reactant_policy.routing.work import Totals

TICK = 0.002


class Stand:
    """Workers `a`, `b`, … with the same models, and what is told to the packer of them.

    Attributes:
        compacted: the sets of workers that were to compact.
        periods: how often workers were to be read.
    """

    def __init__(self, workers: str, models: dict[str, int], **scheduling: Any) -> None:
        self.clock = FakeClock(1000.0)
        self.router = Router(RoundRobin(), "compute")
        self.views = {
            name: WorkerView(name, True, {m: ready(m, weight) for m, weight in models.items()}, "fifo")
            for name in workers
        }
        self.counters: dict[str, dict[str, Totals]] = {name: {} for name in workers}
        self.compacted: list[set[str]] = []
        self.periods: list[float | None] = []
        self.show()
        config = SchedulingConfig(**{"mode": "lpt_packing", "default_replicas": 1, **scheduling})
        self.packer = Packer(
            config,
            board=self.router,
            totals=lambda: self.counters,
            probe_every=self.periods.append,
            compact=lambda names: self.compacted.append(set(names)),
            standing=("this gateway stands alone",),
            clock=self.clock,
            tick_seconds=TICK,
        )
        self.steering = Steering(config, self.packer, self.router)

    def show(self) -> None:
        """Puts the views in force."""
        self.router.swap(build_table(self.views.values()))

    def change(self, worker: str, **fields: Any) -> None:
        """Another view of a worker."""
        self.views[worker] = replace(self.views[worker], **fields)
        self.show()

    def load(self, model: str, workers: str, weight: int = 1) -> None:
        """`model` becomes READY on these."""
        for name in workers:
            self.views[name] = replace(
                self.views[name], models={**self.views[name].models, model: ready(model, weight)}
            )
        self.show()

    def serve(self, seconds: float, **cost: float) -> None:
        """`seconds` pass in which each model takes so many device-seconds per second, shared by its homes."""
        self.clock.advance(seconds)
        for model, share in cost.items():
            items = max(1, round(share * seconds * 1000))
            route = self.router.find(model)
            assert route is not None
            self.router.arrived(route, items)
            homes = self.homes.get(model) or route.candidates
            for worker in homes:
                before = self.counters[worker].get(model, Totals(0.0, 0))
                rows = before.rows + items // len(homes)
                spent = before.compute_seconds + share * seconds / len(homes)
                self.counters[worker] = {**self.counters[worker], model: Totals(spent, rows)}

    @property
    def homes(self) -> dict[str, tuple[str, ...]]:
        """As routing has them."""
        planner = self.packer.planner
        return {} if planner is None else dict(planner.packed.homes)

    @property
    def repacks(self) -> dict[str, int]:
        """By trigger."""
        return dict(self.packer.repacks)

    async def ticks(self, count: int = 5) -> None:
        """The packer has looked a few times at how things are."""
        looked = 0
        real = self.packer._totals

        def counting() -> Any:
            nonlocal looked
            looked += 1
            return real()

        self.packer._totals = counting
        await eventually(lambda: looked >= count)
        self.packer._totals = real


def ready(name: str, weight: int) -> ModelView:
    return ModelView(
        name, READY, batch_input="x", max_batch_size=1_000_000, idempotent=True, weight_bytes=weight
    )


@asynccontextmanager
async def stand(
    workers: str = "abcd", models: dict[str, int] | None = None, **scheduling: Any
) -> AsyncIterator[Stand]:
    """One whose packer runs and has placed the models, where it places any."""
    made = Stand(workers, models if models is not None else dict.fromkeys("mnop", 10), **scheduling)
    running = asyncio.create_task(made.packer.run())
    try:
        await made.packer.settled()
        yield made
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
