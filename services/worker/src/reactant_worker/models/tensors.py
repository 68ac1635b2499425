"""Arrays against what a bundle declares: the checks that requests and the calls of metas have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InternalError, InvalidArgument


class BatchRows(NamedTuple):
    """Rows of a request along the batch axis, and the first tensor that has one."""

    tensor: str
    rows: int


def batch_rows(model: str, arrays: Iterable[tuple[TensorSpec, NDArray[Any]]]) -> BatchRows | None:
    """Rows along the batch axis, None without one; raises InvalidArgument when tensors disagree."""
    found: BatchRows | None = None
    for spec, array in arrays:
        if spec.batch_axis is None:
            continue
        count = array.shape[spec.batch_axis]
        if found is None:
            found = BatchRows(spec.name, count)
        elif found.rows != count:
            raise InvalidArgument(
                f"model '{model}': input '{spec.name}' has {count} rows on its batch axis, "
                f"input '{found.tensor}' has {found.rows}; they must agree"
            )
    return found


def check_batch(
    model: str, batch: BatchRows | None, client: BatchRows | None, sizes: Sequence[int], *, pads: bool
) -> None:
    """Raises InvalidArgument when no compiled batch size takes the rows of `batch`.

    Where `preprocess` made the batch, the client's own tensor is named if it has as many rows.

    Args:
        model: for the message.
        batch: rows of the program's inputs, None for a model without a batch axis.
        client: rows of the client's inputs where they are not the program's.
        sizes: compiled batch sizes, ascending.
        pads: fewer rows than a size may be padded up to it.
    """
    if batch is None or batch.rows in sizes or (pads and batch.rows <= sizes[-1]):
        return
    named = client if client is not None and client.rows == batch.rows else batch
    have = f"model '{model}': input '{named.tensor}' has {named.rows} rows"
    if pads:
        raise InvalidArgument(f"{have}, the largest compiled batch size is {sizes[-1]}")
    accepted = ", ".join(map(str, sizes))
    raise InvalidArgument(
        f"{have}; an output has no batch axis, so padding would change it and only the compiled batch "
        f"sizes are accepted: {accepted}"
    )


def check_names(what: str, given: Mapping[str, Any], specs: Iterable[TensorSpec]) -> None:
    """Raises InternalError unless `given` has exactly the names of `specs`; `what` begins the message."""
    names = {spec.name for spec in specs}
    if given.keys() != names:
        have = ", ".join(sorted(map(str, given))) or "nothing"
        raise InternalError(f"{what} {have}; expected {', '.join(sorted(names)) or 'nothing'}")


def check_array(what: str, spec: TensorSpec, value: Any) -> NDArray[Any]:
    """Checks a value made by a bundle's code for `spec`; `what` says whose it is and begins the message.

    The dtype must match, byte order aside; the rank and the fixed axes too. Raises InternalError.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InternalError(f"{what}, which is no array: {error}") from None
    if spec.dtype.kserve == "BYTES":
        if array.dtype != np.object_:
            raise InternalError(
                f"{what} as numpy {array.dtype}; BYTES takes an object array of bytes (numpy S arrays "
                "strip NULs)"
            )
    elif array.dtype.newbyteorder("=") != spec.dtype.numpy:
        raise InternalError(f"{what} as {array.dtype}, expected {spec.dtype.numpy}")
    if array.ndim != len(spec.dims) or any(
        want not in (-1, have) for want, have in zip(spec.dims, array.shape, strict=True)
    ):
        raise InternalError(f"{what} with shape {list(array.shape)}, expected {list(spec.dims)}")
    # The program and the wire both want native, which is little-endian, whatever the code made.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_bytes(what: str, element: Any) -> bytes:
    """An element of a BYTES tensor as it goes on the wire; `what` begins the message of the InternalError."""
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode("utf-8")
    raise InternalError(f"{what} holds {type(element).__name__}, BYTES takes bytes or str")
