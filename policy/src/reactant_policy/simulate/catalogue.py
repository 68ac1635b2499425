"""What is served in a simulation: models, and what their executions cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np


@final
@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model with a batch axis.

    Attributes:
        name: the model.
        fixed_seconds: device time of an execution, whatever its size, at least 0.
        seconds_per_item: device time that every row adds, padding among them, at least 0.
        sizes: compiled batch sizes, ascending; a model without a batch axis has (1,).
        weight_bytes: of its weights on a device.
    """

    name: str
    fixed_seconds: float
    seconds_per_item: float
    sizes: tuple[int, ...] = (1,)
    weight_bytes: int = 0

    def __post_init__(self) -> None:
        costs = (self.fixed_seconds, self.seconds_per_item)
        if not all(isfinite(cost) and cost >= 0 for cost in costs) or sum(costs) <= 0:
            raise ValueError(
                f"model '{self.name}': an execution takes {self.fixed_seconds} s, and an item "
                f"{self.seconds_per_item} s; accepted are two numbers of at least 0, one of them over 0"
            )
        ascending = sorted(set(self.sizes))
        if not ascending or ascending[0] < 1 or list(self.sizes) != ascending:
            raise ValueError(
                f"model '{self.name}': batch sizes are {list(self.sizes)}; accepted are ascending whole "
                "numbers over 0"
            )
        if self.weight_bytes < 0:
            raise ValueError(
                f"model '{self.name}': weight_bytes is {self.weight_bytes}; accepted is 0 or more"
            )

    @property
    def max_batch_size(self) -> int:
        """Most rows of an execution, and of a request."""
        return self.sizes[-1]

    def seconds(self, size: int) -> float:
        """Device time of an execution of `size` rows, padding among them."""
        return self.fixed_seconds + self.seconds_per_item * size


def sizes_up_to(max_batch_size: int) -> tuple[int, ...]:
    """Powers of two below `max_batch_size`, and itself; ValueError below 1."""
    if max_batch_size < 1:
        raise ValueError(f"the largest batch is {max_batch_size}; accepted is 1 or more")
    powers = [1 << n for n in range(max_batch_size.bit_length()) if 1 << n < max_batch_size]
    return (*powers, max_batch_size)


def generated_catalogue(count: int, seed: int, *, max_batch_size: int = 32) -> Sequence[SimulatedModel]:
    """`count` models of many sizes, the same for the same seed.

    An execution takes 2 to 20 ms and a twentieth of that for every row, weights are 64 MiB to 4 GiB; both
    are log-uniform, so that there are as many models around any size as around twice of it.
    """
    if count < 1:
        raise ValueError(f"a catalogue of {count} models; accepted is 1 or more")
    random = np.random.default_rng(seed)
    fixed = np.exp(random.uniform(np.log(0.002), np.log(0.020), count))
    weights = np.exp2(random.uniform(26, 32, count))
    width = len(str(count - 1))
    return tuple(
        SimulatedModel(
            f"model{index:0{width}}",
            float(fixed[index]),
            float(fixed[index]) / 20,
            sizes_up_to(max_batch_size),
            int(weights[index]),
        )
        for index in range(count)
    )
