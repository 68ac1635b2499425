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
        deadline: monotonic seconds after which the device must not begin it; None waits for ever. Whoever
            sent it takes it out then; one that is still there is refused at the next decision.
        tag: belongs to the sender; the engine hands it back untouched.
        committed: a sub-call of a meta that has begun: it goes before regular requests.
        ticket: set by the engine.
    """

    model: str
    inputs: Arrays
    rows: int
    variant: int | None
    arrived: float
    deadline: float | None = None
    tag: Any = None
    committed: bool = False
    ticket: int = field(default=-1, init=False)


@final
@dataclass(slots=True)  # not frozen: one is made for every request, and frozen ones take three times as long
class Completed:
    """Outputs of one request and where its time went, seconds.

    `outputs` are executable outputs in manifest order, padding sliced off; they may be read-only
    views that share memory with other requests of the same dispatch.

    Attributes:
        queue_seconds: in the queue, and ready behind another execution.
        input_seconds: putting the batch together.
        compute_seconds: the device's, transfers included.
        output_seconds: taking the batch apart.
        done: monotonic seconds at which the execution ended.
    """

    outputs: Arrays
    queue_seconds: float
    input_seconds: float
    compute_seconds: float
    output_seconds: float
    done: float


Outcome = Completed | ServingError
Delivery = Callable[[Sequence[tuple[Submission, Outcome]]], None]
"""Called from the engine's threads with requests that got their outcome; it must not block."""


class Batch(Protocol):
    """Requests put together for one program.

    Either `launch`, `wait` and `outputs` are called, once each and in this order, or `discard` is.
    """

    @property
    def queues(self) -> bool:
        """The device takes it while another runs, and moves its inputs meanwhile."""
        ...

    @property
    def runs_in_launch(self) -> bool:
        """`launch`, as far as is known, returns only when it was computed."""
        ...

    def launch(self) -> None:
        """Hands it to the device, which runs what it was handed one after the other."""
        ...

    def wait(self) -> None:
        """Blocks, without polling, until every output is on the host; raises what went wrong."""
        ...

    def outputs(self) -> list[Arrays]:
        """The outputs of each request, in the order in which they were given."""
        ...

    def discard(self) -> None:
        """It will not be launched."""
        ...


class Runnable(Protocol):
    """A loaded model version that can execute a batch."""

    def stage(self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]) -> Batch:
        """Puts `requests` together, padded up to `size` rows; the device may be busy."""
        ...


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
        """Forgets a version; what still waits for it gets UNAVAILABLE, what is in flight is finished."""

    def set_weight(self, model: str, weight: float) -> None:
        """Changes a version's share of device time; KeyError when it is not attached."""

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Queues requests; each gets exactly one outcome, unless it is cancelled while it waits."""

    def cancel(self, submission: Submission) -> bool:
        """Takes a waiting request out: True, and no outcome follows. False once the device has it."""

    def depth(self, model: str) -> int:
        """Requests waiting for a version: in its queue, or put together and not handed to the device."""

    def busy(self) -> bool:
        """The device has something to execute."""

    def stalled_seconds(self) -> float:
        """How long the current execution is past ten times its cost, 30 s at least; 0.0 when it is not."""

    def statistics(self, model: str) -> EngineStatistics:
        """Counters of a version; KeyError when it is not attached."""

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Seeds the cost of one execution of a variant at `size` rows."""

    def delivered(self, seconds: float) -> None:
        """Tells how long after the end of an execution its outcomes were with those who wait for them."""
