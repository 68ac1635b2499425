"""What is compared: how a gateway routes, and how its workers choose what runs next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, final

from reactant_policy.routing.work import WORK_BASES
from reactant_policy.scheduling.disciplines import DISCIPLINE_NAMES

MODES = ("round_robin", "least_outstanding", "lpt_packing")
PACKING_DISCIPLINES = ("fifo", "edf")
"""What `lpt_packing` accepts of a worker, here as in a gateway."""


@final
@dataclass(frozen=True, slots=True)
class Policy:
    """A scheduling mode of the gateway and a discipline of its workers; names as in the configuration.

    Attributes:
        label: what results call it.
        mode: one of `MODES`.
        discipline: one of `DISCIPLINE_NAMES`.
        work_basis: one of `WORK_BASES`.
        coalesce: requests share executions.
        replicas: workers each model is placed on; None: all. This and what follows is for `lpt_packing`.
        fill_mode: how batches fill; `fill_factor` and `routing_policy` likewise.
        rebalance_compute_seconds: device time of the fleet between two placements;
            `first_rebalance_compute_seconds` before the first.
        demand_halflife_compute_seconds: after which traffic counts half.
        hysteresis: share of a worker that must be gained before a model leaves its home.
    """

    label: str
    mode: str = "round_robin"
    discipline: str = "fifo"
    work_basis: str = "compute"
    coalesce: bool = True
    replicas: int | None = 1
    fill_mode: str = "run"
    fill_factor: float = 1.0
    routing_policy: str = "fill_least"
    rebalance_compute_seconds: float = 300.0
    first_rebalance_compute_seconds: float = 60.0
    demand_halflife_compute_seconds: float = 300.0
    hysteresis: float = 0.1

    @property
    def packs(self) -> bool:
        """Models are placed on some of the workers."""
        return self.mode == "lpt_packing"


def policy(text: str) -> Policy:
    """The policy that a text names: `MODE`, `MODE+DISCIPLINE`, either with `,KEY=VALUE` any number of times.

    Raises:
        ValueError: something in it is not accepted; the message says what is.
    """
    head, *settings = text.split(",")
    mode, plus, discipline = head.partition("+")
    _one_of(f"policy '{text}': mode", mode, MODES)
    if plus:
        _one_of(f"policy '{text}': discipline", discipline, DISCIPLINE_NAMES)
    if mode == "lpt_packing" and plus and discipline not in PACKING_DISCIPLINES:
        _one_of(f"policy '{text}': lpt_packing with discipline", discipline, PACKING_DISCIPLINES)
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        _one_of(f"policy '{text}': key", key, tuple(SETTINGS))
        try:
            chosen[key] = SETTINGS[key].read(value)
        except (ValueError, KeyError):
            accepted = SETTINGS[key].accepted
            raise ValueError(f"policy '{text}': {key} is '{value}'; accepted is {accepted}") from None
    return Policy(text, mode, discipline or "fifo", **chosen)


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """A key of a policy: `read` raises ValueError or KeyError unless the text is what `accepted` says."""

    read: Callable[[str], object]
    accepted: str


def _word(*words: str) -> Setting:
    return Setting({word: word for word in words}.__getitem__, " or ".join(words))


def _number(least: float, *, over: bool) -> Setting:
    def read(text: str) -> float:
        value = float(text)
        if not (value > least if over else value >= least) or value == inf:
            raise ValueError(text)
        return value

    return Setting(read, f"a number {'over' if over else 'of at least'} {least:g}")


def _replicas(text: str) -> int | None:
    count = None if text == "all" else int(text)
    if count is not None and count < 1:
        raise ValueError(text)
    return count


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "work_basis": _word(*WORK_BASES),
        "coalesce": Setting({"on": True, "off": False}.__getitem__, "on or off"),
        "replicas": Setting(_replicas, "all or a count of at least 1"),
        "fill_mode": _word("run", "spread", "inflight"),
        "fill_factor": _number(0, over=True),
        "routing_policy": _word("fill_least", "fill_rr"),
        "rebalance_compute_seconds": _number(0, over=True),
        "first_rebalance_compute_seconds": _number(0, over=True),
        "demand_halflife_compute_seconds": _number(0, over=True),
        "hysteresis": _number(0, over=False),
    }
)
"""Keys of a policy, as in the gateway's configuration but for `coalesce` and `replicas`."""


def _one_of(what: str, value: str, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise ValueError(f"{what} is '{value}'; accepted is {', '.join(accepted)}")
