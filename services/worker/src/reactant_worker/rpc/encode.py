"""Arrays to response tensors: C order, little-endian, one raw slot per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InternalError, InvalidArgument
from reactant_core.wire import frame_bytes
from reactant_proto import inference_pb2 as pb
from reactant_worker.rpc.decode import refuse_region


def requested_outputs(
    model: str, request: pb.ModelInferRequest, specs: Mapping[str, TensorSpec]
) -> Sequence[TensorSpec]:
    """The outputs a request asks for, in its order; all of them when it lists none.

    Raises InvalidArgument for an unknown or repeated name and for an option that is not offered.
    """
    if not request.outputs:
        return tuple(specs.values())
    chosen: dict[str, TensorSpec] = {}
    for output in request.outputs:
        name = output.name
        spec = specs.get(name)
        if spec is None:
            accepted = ", ".join(f"'{n}'" for n in specs)
            raise InvalidArgument(
                f"model '{model}': unknown requested output '{name}'; outputs are {accepted}"
            )
        if name in chosen:
            raise InvalidArgument(f"model '{model}': output '{name}' is requested twice")
        if "classification" in output.parameters:
            raise InvalidArgument(f"model '{model}': output '{name}': 'classification' is not offered")
        refuse_region(model, f"output '{name}'", output.parameters)
        chosen[name] = spec
    return tuple(chosen.values())


def encode_response(
    model: str, request_id: str, outputs: Sequence[tuple[TensorSpec, NDArray[Any]]]
) -> pb.ModelInferResponse:
    """Builds the response; `request_id` is echoed verbatim."""
    response = pb.ModelInferResponse(model_name=model, model_version="1", id=request_id)
    for spec, array in outputs:
        response.outputs.add(name=spec.name, datatype=spec.dtype.kserve, shape=array.shape)
        response.raw_output_contents.append(_raw(model, spec, array))
    return response


def _raw(model: str, spec: TensorSpec, array: NDArray[Any]) -> bytes:
    if spec.dtype.kserve == "BYTES":
        return frame_bytes(_as_bytes(model, spec.name, element) for element in array.ravel(order="C"))
    return array.tobytes()  # C order whatever the strides


def _as_bytes(model: str, name: str, element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode("utf-8")
    kind = type(element).__name__
    raise InternalError(f"model '{model}': output '{name}' holds {kind}, BYTES takes bytes or str")


def check_output(origin: str, spec: TensorSpec, value: Any) -> NDArray[Any]:
    """Checks what a hook returned for `spec`; `origin` names the hook in the error.

    The dtype must match, byte order aside; the rank and the fixed axes too. Raises InternalError.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InternalError(f"{origin} returned '{spec.name}', which is no array: {error}") from None
    if spec.dtype.kserve == "BYTES":
        if array.dtype != np.object_:
            raise InternalError(
                f"{origin} returned '{spec.name}' as numpy {array.dtype}; BYTES takes an object array "
                "of bytes (numpy S arrays strip NULs)"
            )
    elif array.dtype.newbyteorder("=") != spec.dtype.numpy:
        raise InternalError(f"{origin} returned '{spec.name}' as {array.dtype}, expected {spec.dtype.numpy}")
    if array.ndim != len(spec.dims) or any(
        want not in (-1, have) for want, have in zip(spec.dims, array.shape, strict=True)
    ):
        raise InternalError(
            f"{origin} returned '{spec.name}' with shape {list(array.shape)}, expected {list(spec.dims)}"
        )
    # The program and the wire both want native, which is little-endian, whatever the hook made.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
