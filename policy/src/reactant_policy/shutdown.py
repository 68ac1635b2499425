"""How the time of a node's stop is shared out among its processes.

Pure: times are seconds after the signal. Each end is a bound, not a wait: what one part does not use, the
parts after it have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

# Shares of a stop of 27 s, in seconds; another budget is divided in the same proportions.
_WHOLE = 27.0
_WORKERS_CLOSE = 3.5
_GATEWAY_CLOSES = 1.0
_KILL = 0.5


@final
@dataclass(frozen=True, slots=True)
class StopSchedule:
    """When each part of a stop is over at the latest.

    Attributes:
        drained_by: the gateway has answered what it accepted, or the workers are stopped all the same.
        workers_ended_by: the workers have ended, or the gateway is let go all the same.
        killed_at: what still runs is killed.
    """

    drained_by: float
    workers_ended_by: float
    killed_at: float


def stop_schedule(budget_seconds: float, *, gateway: bool, workers: bool) -> StopSchedule:
    """Divides `budget_seconds`, which end with the exit of everything.

    Args:
        budget_seconds: from the signal to the exit of the node.
        gateway: whether there is a gateway to stop.
        workers: whether there are workers to stop.

    Raises:
        ValueError: the budget is negative.
    """
    if budget_seconds < 0:
        raise ValueError(f"budget_seconds is {budget_seconds}, it must be 0 or more")
    scale = budget_seconds / _WHOLE
    killed_at = (_WHOLE - _KILL) * scale
    workers_ended_by = killed_at - (_GATEWAY_CLOSES * scale if gateway else 0.0)
    if not gateway:
        return StopSchedule(0.0, workers_ended_by, killed_at)
    drained_by = workers_ended_by - _WORKERS_CLOSE * scale if workers else killed_at
    return StopSchedule(drained_by, workers_ended_by if workers else killed_at, killed_at)
