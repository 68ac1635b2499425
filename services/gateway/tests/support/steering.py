"""A scheduling that does as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, final

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing.status import ModelStatus, SchedulingStatus, WorkerStatus
from reactant_policy.placement.model import Move, Plan
from reactant_policy.placement.packing import Repack

WORKER = WorkerStatus("w0", True, "fifo", 2, 0.5, 300, 1000, 0.3, 4)
HOT = ModelStatus("hot", None, ("w0", "w1"), ("w0", "w1"), 0.4, 0.002, 100, "run", 2.0, 64.0, 3, own=True)
COLD = ModelStatus("cold", 1, (), ("w1",), 0.0, None, 7, "spread", 1.0, 8.0, 0, own=False)
REPACK = Repack(
    plan=Plan(
        homes={"hot": ("w0", "w1")},
        moves=(Move("hot", ("w2",), ("w0", "w1"), 200, "balance"),),
        placed=1,
        held=5,
        best_gain=0.25,
        bytes_moved=200,
        imbalance_before=2.0,
        imbalance_after=1.1,
        warnings=("hot wants 3 replicas and has 2 workers",),
    ),
    trigger="compute",
    compute_seconds=300.5,
    wall_seconds=12.5,
)


@final
class FakeSteering:
    """Keeps what it is told; `hold` keeps repacks and their settling back.

    Attributes:
        told: what was set.
        refuses: raised by whatever is called.
    """

    def __init__(self) -> None:
        self.policy = SchedulingConfig(mode="lpt_packing")
        self.models = [HOT, COLD]
        self.last: Repack | None = REPACK
        self.told: list[Any] = []
        self.refuses: Exception | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.repacks = 0

    def status(self) -> SchedulingStatus:
        return SchedulingStatus(
            policy=self.policy,
            workers=(WORKER,),
            models=tuple(self.models),
            placed=True,
            last=self.last,
            last_seconds_ago=61.5,
            repacks={"compute": 3, "start": 1},
            next_compute_seconds=12.0 if self.last else None,
            persisted=False,
            warnings=("look here",),
        )

    async def set_policy(self, changes: Mapping[str, object]) -> None:
        self._check()
        self.told.append(dict(changes))
        self.policy = self.policy.model_copy(update=dict(changes))

    async def set_model(
        self,
        model: str,
        *,
        replicas: int | Literal["all"] | None = None,
        fill_mode: str | None = None,
        fill_factor: float | None = None,
        allow_unknown: bool = False,
    ) -> None:
        self._check()
        self.told.append((model, replicas, fill_mode, fill_factor, allow_unknown))

    async def repack(self) -> Repack:
        self._check()
        await self.hold.wait()
        self.repacks += 1
        return REPACK

    async def settled(self) -> None:
        await self.hold.wait()

    def _check(self) -> None:
        if self.refuses is not None:
            raise self.refuses
