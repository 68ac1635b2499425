"""The narrow port between the RPC side and the engine.

Arrays cross it by reference and must not be written to by the sender until the outcome is there.
Neither side knows more of the other, so that RPC front ends can later live in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from numpy.typing import NDArray

from reactant_core.errors import ServingError
from reactant_policy.scheduling.scheduler import ModelTerms

Arrays = tuple[NDArray[Any], ...]


@final
@dataclass(slots=True, eq=False)
class Submission:
    """One request for the device.

    Attributes:
        model: engine key of a loaded model version.
        inputs: executable inputs in manifest order, C-contiguous not required.
        rows: items along the batch axis, at least 1; 1 for a model without one.
        variant: input-shape variant, None for a bundle without variants.
        arrived: monotonic seconds at which the request was ready for the device.
        deadline: monotonic seconds after which it must not be dispatched; None waits for ever.
        tag: belongs to the sender; the engine hands it back untouched.
        ticket: set by the engine.
    """

    model: str
    inputs: Arrays
    rows: int
    variant: int | None
    arrived: float
    deadline: float | None = None
    tag: Any = None
    ticket: int = field(default=-1, init=False)


@final
@dataclass(frozen=True, slots=True)
class Completed:
    """Outputs of one request and where its time went, seconds.

    `outputs` are executable outputs in manifest order, padding sliced off; they may be read-only
    views that share memory with other requests of the same dispatch.
    """

    outputs: Arrays
    queue_seconds: float
    input_seconds: float
    compute_seconds: float
    output_seconds: float


Outcome = Completed | ServingError
Delivery = Callable[[Sequence[tuple[Submission, Outcome]]], None]
"""Called from the engine's thread, once per dispatch, with every request that got its outcome."""


class Runnable(Protocol):
    """A loaded model version that can execute a batch."""

    def execute(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> tuple[list[Arrays], ExecutionTimes]:
        """Runs one program on `requests` put together; blocks until the outputs are on the host."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ExecutionTimes:
    """Seconds spent assembling inputs, computing (transfers included), and slicing outputs."""

    input: float
    compute: float
    output: float


@final
@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Counters of one model version since it was attached."""

    depth: int
    dispatches: int
    requests: int
    rows: int
    compute_seconds: float


class Engine(Protocol):
    """What the RPC side may ask of the engine. Every method is thread-safe and returns at once."""

    def attach(self, model: str, runnable: Runnable, terms: ModelTerms) -> None:
        """Makes a model version runnable."""

    def detach(self, model: str) -> None:
        """Forgets a version; what still waits for it gets UNAVAILABLE."""

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Queues requests; each gets exactly one outcome, unless it is cancelled while it waits."""

    def cancel(self, submission: Submission) -> bool:
        """Takes a waiting request out: True, and no outcome follows. False once it runs or is done."""

    def depth(self, model: str) -> int:
        """Requests waiting for a version."""

    def busy(self) -> bool:
        """The device is executing."""

    def statistics(self, model: str) -> EngineStatistics:
        """Counters of a version; KeyError when it is not attached."""

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Seeds the cost of one execution of a variant at `size` rows."""
