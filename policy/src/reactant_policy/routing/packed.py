"""Routing of `lpt_packing`: requests of a model fill batches on the workers that it is placed on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

from reactant_policy.routing.spread import Spread

FILL_MODES: Final = ("run", "spread", "inflight")
"""Accepted values of `Fill.mode`."""

FILL_POLICIES: Final = ("fill_least", "fill_rr")
"""Accepted values of `routing_policy`."""


@final
@dataclass(frozen=True, slots=True)
class Fill:
    """How the requests of a model are laid on its replicas.

    The quantum Q is the model's largest batch (1 without a batch axis) x `factor`, in items, at least 1.

    Attributes:
        mode: `run`: a replica gets requests until they make Q items, then the next one is opened. A run also
            ends when nothing of the model is in flight, when its replica is gone or cannot take a request,
            and when its replica is a quantum behind: the items of this model in flight on it exceed those
            on the replica with the fewest by Q or more.
            `spread`: each request goes to the replica with the fewest items of this model in flight.
            `inflight`: a replica gets requests for as long as fewer than Q items of this model are in flight
            on it. A model whose load never makes Q stays on one replica for good.
        factor: of the quantum; above 0.

    Raises:
        ValueError: the mode or the factor is not accepted.
    """

    mode: str = "run"
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in FILL_MODES:
            raise ValueError(f"fill mode {self.mode!r}: accepted are {', '.join(FILL_MODES)}")
        if not 0 < self.factor < float("inf"):
            raise ValueError(f"fill factor {self.factor!r}: accepted is a number above 0")


@final
class _Model:
    """What is remembered of one model.

    Attributes:
        mode: its fill mode.
        factor: its fill factor.
        items: in flight by worker; only those that have some.
        total: the sum of `items`.
        run: the replica opened last; empty before the first.
        open: requests may go on to `run`. Only ever true while it is among `replicas`.
        spent: items sent to `run` since it was opened.
        ahead: items that a replica got more than the one that got the fewest, the longest run at most: what
            lies further back is not made up for.
        candidates: those of the last choice, which `replicas` is made from; None: to be made anew.
        replicas: of the candidates those placed, all of them when none is.
    """

    __slots__ = (
        "ahead",
        "candidates",
        "factor",
        "items",
        "mode",
        "open",
        "replicas",
        "run",
        "spent",
        "total",
    )

    def __init__(self, fill: Fill) -> None:
        self.mode = fill.mode
        self.factor = fill.factor
        self.items: dict[str, int] = {}
        self.total = 0
        self.run = ""
        self.open = False
        self.spent = 0
        self.ahead: dict[str, float] = {}
        self.candidates: Sequence[str] | None = None
        self.replicas: Sequence[str] = ()


@final
class Packed(Spread):
    """Requests go to the replicas that placement gave the model, so that batches fill there.

    A candidate without a placement gets requests only when no placed one is left. A model that is not placed
    (before the first placement, or new since the last) has all its candidates as replicas: its batches fill
    on one after the other, and its load goes where there is least.

    The next replica is, by policy, `fill_least`: the one on the worker with the least work in flight of all
    models; `fill_rr`: the next in the order of names that is not a quantum behind. For a run, workers whose
    work in flight differs by less than that run's are equal, since what the last runs left behind would
    decide otherwise; of equal ones the replica that got the fewest items is next, in turn where they got as
    many. So replicas on workers that are equally busy get the same to within a run.
    """

    __slots__ = ("_default", "_fills", "_homes", "_in_turn", "_models", "_started")
    follows_requests = True

    def __init__(
        self, default: Fill | None = None, fills: Mapping[str, Fill] | None = None, policy: str = "fill_least"
    ) -> None:
        """Starts with nothing placed.

        Raises:
            ValueError: see `follow`.
        """
        self._homes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
        self._models: dict[str, _Model] = {}
        # Models that ever started, so that new ones do not all begin on the first worker.
        self._started = 0
        self.follow(default or Fill(), fills or {}, policy)

    def follow(self, default: Fill, fills: Mapping[str, Fill], policy: str) -> None:
        """Routes by other settings from now on; what is in flight stays where it is.

        Args:
            default: of models that are not in `fills`.
            fills: by model.
            policy: one of `FILL_POLICIES`.

        Raises:
            ValueError: the policy is not accepted; nothing was changed.
        """
        if policy not in FILL_POLICIES:
            raise ValueError(f"routing policy {policy!r}: accepted are {', '.join(FILL_POLICIES)}")
        self._default = default
        self._fills = dict(fills)
        self._in_turn = policy == "fill_rr"
        for name, known in self._models.items():
            fill = self.fill(name)
            if (fill.mode, fill.factor) != (known.mode, known.factor):
                known.mode, known.factor, known.open = fill.mode, fill.factor, False

    def assign(self, homes: Mapping[str, tuple[str, ...]]) -> None:
        """Puts a placement in force: workers by model. A model that is not in it counts as not placed."""
        self._homes = MappingProxyType(dict(homes))
        for known in self._models.values():
            known.candidates = None

    @property
    def homes(self) -> Mapping[str, tuple[str, ...]]:
        """The placement in force."""
        return self._homes

    def fill(self, model: str) -> Fill:
        """The settings of `model`."""
        return self._fills.get(model, self._default)

    def quantum(self, model: str, max_batch: int) -> float:
        """Q of `model`, items.

        Args:
            model: the model.
            max_batch: its largest batch; 0 without a batch axis.
        """
        return _quantum(max_batch, self.fill(model).factor)

    def in_flight(self, model: str, worker: str) -> int:
        """Items of `model` in flight on `worker`."""
        known = self._models.get(model)
        return 0 if known is None else known.items.get(worker, 0)

    def choose(
        self,
        model: str,
        candidates: Sequence[str],
        load: Mapping[str, float],
        max_batch: int = 0,
        item_work: float = 0.0,
    ) -> str:
        known = self._models.get(model)
        if known is None:
            known = self._begin(model)
        # A table gives the same object with every request: what follows from it is made once.
        if known.candidates is not candidates:
            self._look(known, model, candidates)
        replicas = known.replicas
        if len(replicas) == 1:
            return replicas[0]
        quantum = _quantum(max_batch, known.factor)
        items = known.items
        alike = 0.0
        if known.mode == "run":
            # Short of a whole run by more than rounding: a replica that has one in flight is not equal.
            alike = quantum * item_work * (1 - 1e-9)
            # Nobody can be ahead of a replica by Q that has less than Q.
            if known.open and known.total and known.spent < quantum:
                mine = items.get(known.run, 0)
                if mine < quantum or mine - _fewest(items, replicas) < quantum:
                    return known.run
        elif known.mode == "spread":
            fewest = _fewest(items, replicas)
            replicas = [worker for worker in replicas if items.get(worker, 0) == fewest]
        else:
            if known.open and items.get(known.run, 0) < quantum:
                return known.run
            replicas = [worker for worker in replicas if items.get(worker, 0) < quantum] or replicas
        chosen = self._next(known, replicas, load, quantum, alike)
        known.run, known.open, known.spent = chosen, True, 0
        return chosen

    def began(self, model: str, worker: str, items: int) -> None:
        known = self._models.get(model)
        if known is None:
            known = self._begin(model)
        if items:
            known.items[worker] = known.items.get(worker, 0) + items
            known.total += items
            known.ahead[worker] = known.ahead.get(worker, 0) + items
            if worker == known.run:
                known.spent += items

    def ended(self, model: str, worker: str, items: int) -> None:
        if items:
            known = self._models[model]
            left = known.items[worker] - items
            known.total -= items
            if left:
                known.items[worker] = left
            else:
                del known.items[worker]

    def adopt(self, other: Packed) -> None:
        """Takes over what is in flight from the rule that was told of requests before this one."""
        for known in self._models.values():
            known.items, known.total = {}, 0
        for name, theirs in other._models.items():
            known = self._models.get(name) or self._begin(name)
            known.items, known.total = dict(theirs.items), theirs.total

    def retain(self, models: Collection[str]) -> None:
        """Forgets every model that is not among `models` and has nothing in flight."""
        for name in [n for n, known in self._models.items() if not known.total and n not in models]:
            del self._models[name]

    def _begin(self, model: str) -> _Model:
        known = self._models[model] = _Model(self.fill(model))
        return known

    def _look(self, known: _Model, model: str, candidates: Sequence[str]) -> None:
        """Sees which of the candidates are placed; a run on a replica that is none of them has ended."""
        homes = self._homes.get(model, ())
        placed = tuple(worker for worker in candidates if worker in homes) if homes else ()
        replicas = placed or candidates
        if replicas != known.replicas:
            known.ahead = {}
        known.candidates, known.replicas = candidates, replicas
        known.open = known.open and known.run in known.replicas

    def _next(
        self,
        known: _Model,
        replicas: Sequence[str],
        load: Mapping[str, float],
        quantum: float,
        alike: float,
    ) -> str:
        """The replica to open, of at least one; loads that differ by `alike` or less are equal."""
        if known.run:
            start = bisect_right(replicas, known.run) % len(replicas)
        else:
            start = self._started % len(replicas)
            self._started += 1
        turns = (*replicas[start:], *replicas[:start])
        items = known.items
        if self._in_turn:
            behind = _fewest(items, replicas) + quantum
            return next(worker for worker in turns if items.get(worker, 0) < behind)
        bound = min([load.get(worker, 0.0) for worker in replicas]) + alike
        ahead = known.ahead
        fewest = _fewest(ahead, known.replicas)
        # As long as a run can be whose last request is a full batch.
        most = quantum + quantum / known.factor
        known.ahead = ahead = {w: min(ahead.get(w, 0) - fewest, most) for w in known.replicas}
        equal = [worker for worker in turns if load.get(worker, 0.0) <= bound]
        return min(equal, key=ahead.__getitem__)


def _quantum(max_batch: int, factor: float) -> float:
    return max(1.0, (max_batch or 1) * factor)


def _fewest(items: Mapping[str, float], replicas: Sequence[str]) -> float:
    return min([items.get(worker, 0) for worker in replicas])
