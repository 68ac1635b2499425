"""The catalogue of these tests: twelve models whose costs differ, and the traffic that they get."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

FULL = os.environ.get("REACTANT_TEST_FULL") == "1"

WORKERS = 4
WORKER_NAMES = tuple(f"worker{index}" for index in range(WORKERS))
BATCH_SIZES = (1, 2, 8)
LARGEST = BATCH_SIZES[-1]
"""Rows of a full batch."""
WIDTH = 4

STEPS_OF_A_MILLISECOND = 55_000

COSTS: Mapping[str, float] = {
    "hot": 14.2,
    "warm": 20.6,
    "m02": 15.4,
    "m03": 13.0,
    "m04": 11.5,
    "m05": 10.6,
    "m06": 7.7,
    "m07": 6.5,
    "m08": 5.2,
    "m09": 3.9,
    "m10": 3.9,
    "m11": 2.6,
}
"""Milliseconds that one row takes on the device, about."""


def times_one(rows: int) -> float:
    """The device time of so many rows, as a multiple of one row's: an eighth for each beyond the first."""
    return 1 + (rows - 1) / 8


BURST = LARGEST
"""Single rows sent in one write: a batch for one worker, a quarter of one where they go in turn."""

PERIODS: Mapping[str, float] = {**dict.fromkeys(COSTS, 1.0), "hot": 0.5}
"""Seconds from one burst of a model to the next. Of all device time `hot` takes 22 %, the others 16, 12, 10,
9, 8, 6, 5, 4, 3, 3 and 2: four workers can share that evenly, and do not where only the number of models
counts. It is a third of a second each second; with more, four workers would wait for two cores, and what they
measure would be waiting."""

SHIFTED: Mapping[str, float] = {**PERIODS, "hot": 1.0, "m06": 0.25}
"""Another model is the hot one. Again there is an even share for each."""

EVEN = 1.10 if FULL else 1.25
"""Most that the busiest worker may have of an equal part. A few seconds on a machine that does other things
beside say no more than that; the placement before any traffic is worse by far."""

KEPT = 1.1 * EVEN
"""The same of a placement that came about by moves: a model leaves its home only for a gain of a tenth."""

SECONDS = 32.0 if FULL else 4.0
"""How long a test looks at the load: whole periods, or what it sees depends on where it began."""


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """Device-seconds of the fleet.

    Attributes:
        first: before the first repack that knows of traffic.
        later: between repacks.
        half_life: after which traffic counts half.
    """

    first: float
    later: float
    half_life: float

    @property
    def environ(self) -> dict[str, str]:
        """What tells a gateway."""
        prefix = "REACTANT_GATEWAY_SCHEDULING"
        return {
            f"{prefix}_FIRST_REBALANCE_COMPUTE_SECONDS": str(self.first),
            f"{prefix}_REBALANCE_COMPUTE_SECONDS": str(self.later),
            f"{prefix}_DEMAND_HALFLIFE_COMPUTE_SECONDS": str(self.half_life),
        }


BUDGET = Budget(3.0, 5.0, 5.0) if FULL else Budget(0.6, 1.0, 1.5)

BY_ENVIRONMENT = {
    "INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "fifo",
    "REACTANT_GATEWAY_SCHEDULING_MODE": "lpt_packing",
    "REACTANT_GATEWAY_SCHEDULING_DEFAULT_REPLICAS": "1",
}
"""What deployment.md says that switches a node to packing."""

MIB = 1 << 20
WEIGHTS: Mapping[str, int] = {"w0": 4 * MIB, "w1": 4 * MIB, "w2": 4 * MIB, "w3": 4 * MIB}
"""Models with weights, for workers that have little room for them."""
