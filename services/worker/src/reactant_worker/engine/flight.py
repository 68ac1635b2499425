"""One dispatch on its way from the queue to its outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from reactant_policy.pipeline import Place
from reactant_policy.scheduling.scheduler import Dispatch
from reactant_worker.engine.port import Runnable, Submission


@final
@dataclass(slots=True, eq=False)
class Attached:
    """A model version and what it has done.

    Attributes:
        staged: requests that left its queue and were not handed to the device.
    """

    runnable: Runnable
    staged: int = 0
    dispatches: int = 0
    requests: int = 0
    rows: int = 0
    compute_seconds: float = 0.0


@final
@dataclass(slots=True, eq=False)
class Flight:
    """A dispatch that was taken: it is staged, boarded, launched, and ends. One thread at a time has it.

    Attributes:
        dispatch: what the scheduler decided.
        attached: the version that runs it.
        place: its place among what is in flight.
        taken: when its requests left the queue, monotonic seconds.
        overlaps: the next may be prepared while it runs.
        submissions: those of its requests that get an outcome from it, with their positions in the batch.
        boarded: `submissions` are settled, nobody can leave any more.
        launched: the device has it.
    """

    dispatch: Dispatch
    attached: Attached
    place: Place
    taken: float
    overlaps: bool
    submissions: list[tuple[int, Submission]]
    boarded: bool = False
    launched: bool = False
