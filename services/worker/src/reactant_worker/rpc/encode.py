"""Arrays to response tensors: C order, little-endian, one raw slot per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InvalidArgument
from reactant_core.wire import frame_bytes
from reactant_proto import inference_pb2 as pb
from reactant_worker.models.tensors import as_bytes
from reactant_worker.rpc.regions import BYTE_SIZE, OFFSET, REGION, Regions, Window


class Wanted(NamedTuple):
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
    add, raws = response.outputs.add, response.raw_output_contents
    for (spec, window), array in outputs:
        kserve = spec.dtype.kserve
        output = add(name=spec.name, datatype=kserve, shape=array.shape)
        # In C order whatever the strides.
        raw = _framed(model, spec, array) if kserve == "BYTES" else array.tobytes()
        if window is not None:
            try:
                window.write(raw)
            except InvalidArgument as error:
                raise InvalidArgument(f"model '{model}': output '{spec.name}' {error.message}") from None
            output.parameters[REGION].string_param = window.region.name
            output.parameters[BYTE_SIZE].int64_param = len(raw)
            output.parameters[OFFSET].int64_param = window.offset
            raw = b""
        raws.append(raw)
    return response


def _framed(model: str, spec: TensorSpec, array: NDArray[Any]) -> bytes:
    what = f"model '{model}': output '{spec.name}'"
    return frame_bytes(as_bytes(what, element) for element in array.ravel(order="C"))
