"""When which model is asked for how many items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np
from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order of time; the arrays are of one length.

    Attributes:
        models: names that `which` points at.
        times: float64 [n], seconds since the first moment, ascending.
        which: int64 [n], index of the model.
        items: int64 [n], rows of the request, at least 1.
    """

    models: tuple[str, ...]
    times: NDArray[np.float64]
    which: NDArray[np.int64]
    items: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        """When the last request arrives; 0 without any."""
        return float(self.times[-1]) if len(self.times) else 0.0


def recorded(arrivals: Iterable[tuple[float, str, int]]) -> Trace:
    """The trace of (time, model, items) in any order; the first arrival is at 0."""
    rows = sorted(arrivals, key=lambda row: row[0])
    models = tuple(sorted({model for _, model, _ in rows}))
    index = {model: number for number, model in enumerate(models)}
    times = np.array([time for time, _, _ in rows], np.float64)
    return Trace(
        models,
        times - times[0] if rows else times,
        np.array([index[model] for _, model, _ in rows], np.int64),
        np.array([items for _, _, items in rows], np.int64),
    )


@final
@dataclass(frozen=True, slots=True)
class Traffic:
    """What to generate: a Poisson process of bursts, each for one model, chosen by Zipf's law.

    Attributes:
        requests_per_second: mean, over 0.
        seconds: how long, over 0.
        zipf: exponent s, at least 0: the k-th most popular model gets a share in proportion to 1 ÷ k^s; 0 is
            the same share for all.
        items: fewest and most rows of a request, all equally likely.
        burst: requests that come at once; 1 is a plain Poisson process.
        shifts: times at which popularity moves on: who was most popular becomes one of the middle.
        seed: of the random numbers; which models are popular follows from it, too.
    """

    requests_per_second: float
    seconds: float
    zipf: float = 1.0
    items: tuple[int, int] = (1, 1)
    burst: int = 1
    shifts: tuple[float, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        faults = []
        for name in ("requests_per_second", "seconds"):
            value = getattr(self, name)
            if not 0 < value < inf:
                faults.append(f"{name} is {value}; accepted is a number over 0")
        if not 0 <= self.zipf < inf:
            faults.append(f"zipf is {self.zipf}; accepted is 0 or more")
        if not 1 <= self.items[0] <= self.items[1]:
            faults.append(f"items are {self.items[0]} to {self.items[1]}; accepted are 1 or more, ascending")
        if self.burst < 1:
            faults.append(f"burst is {self.burst}; accepted is 1 or more")
        if faults:
            raise ValueError("; ".join(faults))


def shares(count: int, zipf: float, seed: int) -> NDArray[np.float64]:
    """Shares [count] of the requests that `count` models get before the first shift, together 1."""
    found = np.empty(count)
    found[_popularity(count, seed)] = _zipf_shares(count, zipf)
    return found


def generate(models: Sequence[str], traffic: Traffic) -> Trace:
    """A trace over `models`, the same for the same arguments."""
    random = np.random.default_rng(traffic.seed)
    # Six standard deviations more than the mean, so that one draw is enough in all but very rare cases.
    bursts_per_second = traffic.requests_per_second / traffic.burst
    mean = bursts_per_second * traffic.seconds
    count = int(mean + 6.0 * mean**0.5) + 8
    times = np.cumsum(random.exponential(1.0 / bursts_per_second, count))
    while times[-1] < traffic.seconds:
        more = np.cumsum(random.exponential(1.0 / bursts_per_second, count))
        times = np.concatenate((times, times[-1] + more))
    times = times[times < traffic.seconds]
    ranks = random.choice(len(models), len(times), p=_zipf_shares(len(models), traffic.zipf))
    order = _popularity(len(models), traffic.seed)
    shifted = np.searchsorted(np.sort(np.array(traffic.shifts, np.float64)), times, side="right")
    half = max(1, len(models) // 2)
    # Odd steps of half the catalogue would come back to where they began after two shifts.
    steps = shifted * half + shifted // 2
    low, high = traffic.items
    return Trace(
        tuple(models),
        np.repeat(times, traffic.burst),
        np.repeat(order[(ranks + steps) % len(models)], traffic.burst),
        random.integers(low, high, len(times) * traffic.burst, endpoint=True),
    )


def _popularity(count: int, seed: int) -> NDArray[np.int64]:
    """Models [count], the most popular first; of random numbers of its own, to be known before the trace."""
    return np.random.default_rng((seed, 1)).permutation(count)


def _zipf_shares(count: int, exponent: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights
