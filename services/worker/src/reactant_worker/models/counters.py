"""What a model has done, as ModelStatistics and the metrics report it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from reactant_worker.engine.port import Completed


@final
@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts one more."""
        self.count += 1
        self.seconds += seconds


@final
@dataclass(slots=True)
class ModelCounters:
    """Counters of one model name; they survive reloads. Touched by the event loop only.

    Attributes:
        rows: items answered successfully.
        last_seconds: wall-clock time of the last answered request, seconds since the epoch.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    rows: int = 0
    last_seconds: float = 0.0

    def succeeded(self, seconds: float, rows: int, completed: Completed | None, now: float) -> None:
        """Counts a request that was answered; `completed` is None when nothing had to run."""
        self.success.add(seconds)
        self.rows += rows
        self.last_seconds = now
        if completed is not None:
            self.executed(completed)

    def executed(self, completed: Completed) -> None:
        """Counts where the time of an execution went, for a client's request or for a stage of a meta."""
        self.queue.add(completed.queue_seconds)
        self.compute_input.add(completed.input_seconds)
        self.compute_infer.add(completed.compute_seconds)
        self.compute_output.add(completed.output_seconds)
