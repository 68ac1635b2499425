"""Arrays to response tensors: C order, little-endian, one raw slot per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InternalError, InvalidArgument
from reactant_core.wire import frame_bytes
from reactant_proto import inference_pb2 as pb
from reactant_worker.rpc.regions import BYTE_SIZE, OFFSET, REGION, Regions, Window


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """An output a request asks for, and the shared memory it goes to, None for the response itself."""

    spec: TensorSpec
    window: Window | None = None


def requested_outputs(
    model: str, request: pb.ModelInferRequest, specs: Mapping[str, TensorSpec], regions: Regions
) -> Sequence[Wanted]:
    """The outputs a request asks for, in its order; all of them when it lists none.

    Raises InvalidArgument for an unknown or repeated name and for an option that is not offered,
    ModelNotFound for a shared-memory region that is not registered.
    """
    if not request.outputs:
        return [Wanted(spec) for spec in specs.values()]
    chosen: dict[str, Wanted] = {}
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
        window = regions.window(f"model '{model}': output '{name}': ", output.parameters)
        chosen[name] = Wanted(spec, window)
    return list(chosen.values())


def encode_response(
    model: str, request_id: str, outputs: Sequence[tuple[Wanted, NDArray[Any]]]
) -> pb.ModelInferResponse:
    """Builds the response; `request_id` is echoed verbatim.

    Every output has a raw slot; that of one in shared memory is empty, and its parameters say where
    it went. Raises InvalidArgument when it does not fit there.
    """
    response = pb.ModelInferResponse(model_name=model, model_version="1", id=request_id)
    for wanted, array in outputs:
        spec, window = wanted.spec, wanted.window
        output = response.outputs.add(name=spec.name, datatype=spec.dtype.kserve, shape=array.shape)
        raw = _raw(model, spec, array)
        if window is not None:
            try:
                window.write(raw)
            except InvalidArgument as error:
                raise InvalidArgument(f"model '{model}': output '{spec.name}' {error.message}") from None
            output.parameters[REGION].string_param = window.region.name
            output.parameters[BYTE_SIZE].int64_param = len(raw)
            output.parameters[OFFSET].int64_param = window.offset
            raw = b""
        response.raw_output_contents.append(raw)
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
