"""A tensor as a manifest declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from reactant_core.bundle.dtypes import DType


@final
@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One declared input or output.

    Attributes:
        name: not empty, unique among its list.
        dtype: element type.
        axes: one ASCII letter per axis, row-major as on the wire.
        dims: size per axis in the same order; -1 for the batch axis and for variable axes.
        batch_axis: index of the axis lettered `n` or `b`, None when there is none.
    """

    name: str
    dtype: DType
    axes: str
    dims: tuple[int, ...]
    batch_axis: int | None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def variable_axes(self) -> tuple[int, ...]:
        """Indices of the axes written -1; the batch axis is not one of them."""
        return tuple(i for i, size in enumerate(self.dims) if size < 0 and i != self.batch_axis)


def concrete_shape(
    spec: TensorSpec, batch: int | None, variant: Mapping[str, int] | None = None
) -> tuple[int, ...]:
    """The shape of `spec` for one program.

    Args:
        spec: a declared tensor.
        batch: size of the batch axis; without one it stays -1.
        variant: sizes of variable axes by letter, an entry of a manifest's `input_shapes`.

    Returns:
        One size per axis; -1 remains where neither argument gives a size.
    """
    sizes = list(spec.dims)
    if spec.batch_axis is not None and batch is not None:
        sizes[spec.batch_axis] = batch
    if variant:
        for axis in spec.variable_axes:
            sizes[axis] = variant.get(spec.axes[axis], -1)
    return tuple(sizes)
