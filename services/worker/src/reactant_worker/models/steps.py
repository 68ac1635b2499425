"""The steps from a request's tensors to its outputs that do not depend on who asks, a client or a meta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InternalError
from reactant_core.logs import get_logger
from reactant_worker.engine.port import Arrays
from reactant_worker.models.hooks import HookRequest
from reactant_worker.models.served import ServedModel
from reactant_worker.models.tensors import BatchRows, batch_rows, check_array, check_batch, check_names

_log = get_logger(__name__)


class Prepared(NamedTuple):
    """What a program is run on.

    Attributes:
        inputs: executable inputs in manifest order.
        rows: items along the batch axis; 1 without one, and 0 leaves nothing to run.
        variant: the input-shape variant.
    """

    inputs: Arrays
    rows: int
    variant: int | None


def client_rows(model: ServedModel, tensors: Mapping[str, NDArray[Any]]) -> BatchRows | None:
    """Rows of what a client sent; raises InvalidArgument when its tensors disagree."""
    return batch_rows(model.name, ((spec, tensors[name]) for name, spec in model.client_inputs.items()))


def preprocess(
    model: ServedModel, tensors: Mapping[str, NDArray[Any]], request: HookRequest
) -> dict[str, NDArray[Any]]:
    """Runs the hook on the calling thread: client inputs to executable inputs.

    Raises InvalidArgument when the hook refused the request, InternalError for anything else.
    """
    assert model.hooks is not None
    returned = model.hooks.run("preprocess", tensors, request)
    return checked(model, "preprocess", returned, model.executable_inputs)


def postprocess(
    model: ServedModel, outputs: Mapping[str, NDArray[Any]], request: HookRequest
) -> dict[str, NDArray[Any]]:
    """Runs the hook on the calling thread: executable outputs to client outputs. Raises as `preprocess`."""
    assert model.hooks is not None
    returned = model.hooks.run("postprocess", outputs, request)
    return checked(model, "postprocess", returned, tuple(model.client_outputs.values()))


def checked(
    model: ServedModel, stage: str, returned: Mapping[str, Any], specs: tuple[TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    """What a hook returned, as arrays that fit `specs`; raises InternalError, which is logged."""
    origin = f"model '{model.name}': {stage} returned"
    try:
        check_names(origin, returned, specs)
        return {
            spec.name: check_array(f"{origin} '{spec.name}'", spec, returned[spec.name]) for spec in specs
        }
    except InternalError as error:
        # The client is told, but it is the bundle's author who has to see it.
        _log.error("hook returned what it must not", model=model.name, hook=stage, reason=error.message)
        raise


def prepare(
    model: ServedModel, tensors: Mapping[str, NDArray[Any]], client: BatchRows | None = None
) -> Prepared:
    """Executable inputs as one submission.

    `client` is the rows of the client's tensors where `preprocess` made others of them. Raises
    InvalidArgument when no compiled batch size or no input-shape variant fits.
    """
    specs = model.executable_inputs
    # A list: a generator costs three times as much for so few.
    inputs: Arrays = tuple([tensors[spec.name] for spec in specs])
    batch = batch_rows(model.name, zip(specs, inputs))  # noqa: B905
    check_batch(model.name, batch, client, model.sizes, pads=model.pads)
    return Prepared(inputs, 1 if batch is None else batch.rows, model.variant_of(inputs))


def named_outputs(model: ServedModel, outputs: Arrays) -> dict[str, NDArray[Any]]:
    """A program's outputs by name."""
    return {spec.name: array for spec, array in zip(model.executable_outputs, outputs)}  # noqa: B905


def empty_outputs(model: ServedModel, variant: int | None) -> Arrays:
    """What a program would give for no rows at all."""
    return tuple(
        np.zeros(
            tuple(0 if axis == spec.batch_axis else size for axis, size in enumerate(shape)),
            spec.dtype.numpy,
        )
        for spec, shape in zip(model.executable_outputs, model.output_shapes[variant], strict=True)
    )
