"""Virtual time: one heap of what comes next, and arrivals beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, final

from reactant_policy.simulate.fleet import Fleet
from reactant_policy.simulate.gateway import SimulatedGateway
from reactant_policy.simulate.policies import Policy
from reactant_policy.simulate.result import Result
from reactant_policy.simulate.tally import Tally
from reactant_policy.simulate.trace import Trace
from reactant_policy.simulate.worker import Execution, SimulatedWorker

# What happens, in the order in which it does at one moment: devices before what they free up is used.
_END: Final = 0
_ANSWER: Final = 1
_EXPIRE: Final = 2
_PLACE: Final = 3
_REQUEST: Final = 4
_PROBE: Final = 5
_WAKE: Final = 6


def simulate(
    trace: Trace,
    fleet: Fleet,
    policy: Policy,
    *,
    warm_up_seconds: float = 0.0,
    repack_at: Sequence[float] = (),
) -> Result:
    """Replays a trace until its last request is settled; the same for the same arguments.

    Args:
        trace: arrivals at the gateway.
        fleet: what they meet.
        policy: how it decides.
        warm_up_seconds: what is before this time runs, and is not in the figures.
        repack_at: when someone asks for a placement, seconds; only `lpt_packing` makes one.

    Raises:
        ValueError: the trace is empty or ends before the warm-up does, or it has a model that the fleet has
            not, or a request with more items than its model takes.
    """
    _check(trace, fleet, warm_up_seconds)
    return _Run(trace, fleet, policy, warm_up_seconds).run(repack_at)


def _check(trace: Trace, fleet: Fleet, warm_up_seconds: float) -> None:
    if not 0 <= warm_up_seconds < trace.seconds:
        raise ValueError(
            f"the warm-up takes {warm_up_seconds:g} s of a trace of {trace.seconds:g} s; accepted is 0 or "
            "more, and less than the trace"
        )
    unknown = [model for model in trace.models if model not in fleet.models]
    if unknown:
        some = ", ".join(fleet.models) if len(fleet.models) <= 10 else f"{len(fleet.models)} others"
        raise ValueError(f"the catalogue has no model '{unknown[0]}'; it has {some}")
    for number, model in enumerate(trace.models):
        mine = trace.items[trace.which == number]
        largest = fleet.models[model].max_batch_size
        if len(mine) and not 1 <= mine.min() <= mine.max() <= largest:
            raise ValueError(
                f"model '{model}' is asked for {mine.min()} to {mine.max()} items; accepted are 1 to "
                f"{largest}, its largest batch"
            )


@final
class _Run:
    """One simulation. Tickets are positions in the trace."""

    def __init__(self, trace: Trace, fleet: Fleet, policy: Policy, warm_up: float) -> None:
        self._trace = trace
        self._fleet = fleet
        self._policy = policy
        self._tally = Tally(trace, fleet, warm_up)
        self._events: list[tuple[float, int, int, SimulatedWorker | None, object]] = []
        self._order = count()
        self._wakes = dict.fromkeys(fleet.workers, inf)
        self._workers: dict[str, SimulatedWorker] = {}
        for name in fleet.workers:
            self._workers[name] = SimulatedWorker(
                name,
                fleet.models,
                policy.discipline,
                wake=partial(self._wake, name),
                launch=partial(self._launched, name),
                coalesces=policy.coalesce,
            )
        self._gateway = SimulatedGateway(policy, fleet)

    def run(self, repack_at: Sequence[float]) -> Result:
        trace, events, workers = self._trace, self._events, self._workers
        times, which, items = trace.times.tolist(), trace.which.tolist(), trace.items.tolist()
        handlers: dict[int, Callable[[float, SimulatedWorker, object], None]] = {
            _END: self._end,
            _ANSWER: self._answer,
            _EXPIRE: self._expire,
            _WAKE: self._woken,
        }
        if self._gateway.measures:
            self._probe(0.0)
        for at in repack_at:
            self._push(at, _REQUEST)
        ticket, arrivals = 0, len(times)
        while ticket < arrivals or self._tally.outstanding:
            if ticket < arrivals and (not events or times[ticket] < events[0][0]):
                now = times[ticket]
                # What comes in one moment is queued before anything of it runs, as of one read on a worker.
                met: dict[str, SimulatedWorker] = {}
                while ticket < arrivals and times[ticket] == now:
                    model = trace.models[which[ticket]]
                    worker = workers[self._gateway.route(ticket, model, items[ticket])]
                    self._arrive(now, ticket, worker, model, items[ticket])
                    met[worker.name] = worker
                    ticket += 1
                for worker in met.values():
                    self._step(now, worker)
                continue
            now, kind, _, worker_or_none, what = heappop(events)
            if kind == _PROBE:
                self._probe(now)
            elif kind == _REQUEST:
                self._gateway.want()
            elif kind == _PLACE:
                self._gateway.place()
            elif worker_or_none is not None:
                handlers[kind](now, worker_or_none, what)
        return self._tally.result(self._policy.label, self._gateway.homes, self._gateway.repacks)

    def _arrive(self, now: float, ticket: int, worker: SimulatedWorker, model: str, items: int) -> None:
        deadline = None
        if self._fleet.timeout_seconds < inf:
            deadline = now + self._fleet.timeout_seconds
            self._push(deadline, _EXPIRE, worker, (ticket, model))
        self._tally.outstanding += 1
        worker.enqueue(now, ticket, model, items, deadline)

    def _step(self, now: float, worker: SimulatedWorker) -> None:
        worker.step(now)
        while worker.late:
            self._give_up(worker.late.pop())

    def _end(self, now: float, worker: SimulatedWorker, _: object) -> None:
        execution = worker.end(now)
        self._tally.executed(worker.name, execution)
        if self._fleet.overhead_seconds:
            self._push(now + self._fleet.overhead_seconds, _ANSWER, worker, execution)
        else:
            self._answer(now, worker, execution)
        self._step(now, worker)

    def _answer(self, now: float, _: SimulatedWorker, execution: object) -> None:
        assert isinstance(execution, Execution)
        for request in execution.dispatch.requests:
            self._gateway.settled(request.ticket)
            self._tally.answered(request.ticket, now)

    def _expire(self, now: float, worker: SimulatedWorker, what: object) -> None:
        assert isinstance(what, tuple)
        ticket, model = what
        if worker.cancel(model, ticket):
            self._give_up(ticket)
            self._step(now, worker)

    def _give_up(self, ticket: int) -> None:
        self._gateway.settled(ticket)
        self._tally.given_up(ticket)

    def _woken(self, now: float, worker: SimulatedWorker, _: object) -> None:
        # One that came earlier was asked for since: then it was looked after already.
        if self._wakes[worker.name] == now:
            self._wakes[worker.name] = inf
        self._step(now, worker)

    def _probe(self, now: float) -> None:
        if self._gateway.probe(now, self._workers):
            # Nobody is served before the placement at the start is in force.
            self._push(now + self._fleet.planning_seconds if now else now, _PLACE)
        self._push(now + self._fleet.probe_seconds, _PROBE)

    def _wake(self, name: str, at: float) -> None:
        if at < self._wakes[name]:
            self._wakes[name] = at
            self._push(at, _WAKE, self._workers[name])

    def _launched(self, name: str, execution: Execution) -> None:
        self._push(execution.end, _END, self._workers[name])

    def _push(self, at: float, kind: int, worker: SimulatedWorker | None = None, what: object = None) -> None:
        heappush(self._events, (at, kind, next(self._order), worker, what))
