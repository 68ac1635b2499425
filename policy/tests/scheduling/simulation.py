"""A device, its clients and its clock, simulated around a scheduler."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from hypothesis import settings
from hypothesis import strategies as st

from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Dispatch, ModelTerms, Scheduler

STEADY = settings(derandomize=True, deadline=None, database=None)
"""The same examples in every run."""

SIZES = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True).map(lambda s: tuple(sorted(s)))

Seconds = Callable[[str, int], float]
"""Device time of one execution of a model at a size."""


@dataclass(frozen=True)
class Executed:
    dispatch: Dispatch
    start: float
    end: float


@dataclass
class Simulation:
    """Runs executions one after the other, with at most `depth` handed to the device.

    Attributes:
        seconds: what an execution takes; asked once for each.
        depth: executions in flight, the running one among them.
        executed: in the order in which they ran.
        dropped: when, of which model, and which request.
    """

    scheduler: Scheduler
    seconds: Seconds
    depth: int = 1
    now: float = 0.0
    executed: list[Executed] = field(default_factory=list)
    dropped: list[tuple[float, str, Waiting]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tickets = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._flying: deque[Executed] = deque()
        self._kept: dict[str, int] = {}

    def add(self, model: str, sizes: tuple[int, ...] = (1,), weight: float = 1.0, delay: float = 0.0) -> None:
        """Adds a model that coalesces, its costs known from warm-up."""
        self.scheduler.add_model(model, ModelTerms(sizes, True, sizes[-1], weight, delay))
        for size in sizes:
            self.scheduler.seed(model, None, size, self.seconds(model, size))

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Does something at a time."""
        heappush(self._events, (time, next(self._order), action))

    def arrive(self, model: str, *, timeout: float | None = None, committed: bool = False) -> None:
        """A request arrives now; as in a worker, a timer takes it out at its deadline, busy device or not."""
        ticket = next(self._tickets)
        deadline = None if timeout is None else self.now + timeout
        self.scheduler.enqueue(model, Waiting(ticket, 1, None, self.now, deadline, committed))

        def expire() -> None:
            request = self.scheduler.cancel(model, ticket)
            if request is not None:
                self.dropped.append((self.now, model, request))

        if deadline is not None:
            self.at(deadline, expire)

    def saturate(self, model: str, depth: int = 8) -> None:
        """From now on `depth` requests wait for a model at every decision; 0 ends it."""
        self._kept[model] = depth

    def run(self, until: float) -> None:
        """Lets time pass."""
        self._decide()
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()
            if not (self._events and self._events[0][0] == self.now):
                self._decide()
        self.now = until

    def used(self, start: float = 0.0, end: float = inf) -> Counter[str]:
        """Device seconds by model of the executions that began in a time."""
        used: Counter[str] = Counter()
        for one in self.executed:
            if start <= one.start < end:
                used[one.dispatch.model] += one.end - one.start  # type: ignore[assignment]
        return used

    def longest_wait(self, model: str, start: float = 0.0, end: float = inf) -> float:
        """The longest time in a window during which no execution of a model began."""
        starts = [x.start for x in self.executed if x.dispatch.model == model and start <= x.start < end]
        times = [start, *starts, min(end, self.now)]
        return max(b - a for a, b in itertools.pairwise(times))

    def left_in_flight(self) -> float:
        """Device time left of what is in flight, by learned costs, as an engine reckons it."""
        left = 0.0
        for place, one in enumerate(self._flying):
            d = one.dispatch
            cost = self.scheduler.cost.measured(d.model, d.variant, d.size) or 0.0
            left += max(0.0, cost - (self.now - one.start)) if place == 0 else cost
        return left

    def _decide(self) -> None:
        while True:
            for model, depth in self._kept.items():
                while self.scheduler.depth(model) < depth:
                    self.arrive(model)
            if len(self._flying) >= self.depth:
                break
            decision = self.scheduler.next(self.now, self.left_in_flight())
            self.dropped += [(self.now, m, r) for m, r in decision.dropped]
            if decision.dispatch is None:
                if decision.wait_until is not None:
                    self.at(decision.wait_until, lambda: None)
                break
            self._launch(decision.dispatch)

    def _launch(self, dispatch: Dispatch) -> None:
        start = max(self.now, self._flying[-1].end) if self._flying else self.now
        end = start + self.seconds(dispatch.model, dispatch.size)
        one = Executed(dispatch, start, end)
        self._flying.append(one)
        self.executed.append(one)
        self.at(end, self._end)

    def _end(self) -> None:
        one = self._flying.popleft()
        d = one.dispatch
        self.scheduler.observe(d.model, d.variant, d.size, one.end - one.start, self.now)
