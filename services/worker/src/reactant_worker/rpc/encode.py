"""Arrays to response tensors: C order, little-endian, one raw slot per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

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


@final
class ResponseForm:
    """What the responses to requests of one form have in common: everything but the id and the contents."""

    def __init__(self, model: str, wanted: Sequence[Wanted], outputs: Sequence[str]) -> None:
        """Args:
        model: name for the response.
        wanted: what is asked for, no BYTES, none of it in shared memory.
        outputs: names of the arrays that `encode` is given.
        """
        self._model = model
        self._wanted = wanted
        self._places = [outputs.index(spec.name) for spec, _ in wanted]
        self._shapes: list[tuple[int, ...]] | None = None
        self._head = b""
        self._tags: list[bytes] = []

    def encode(self, id_field: bytes, outputs: Sequence[NDArray[Any]]) -> bytes:
        """An encoded response; `id_field` is that of the request, which a response has as the same field."""
        arrays = [outputs[place] for place in self._places]
        if [array.shape for array in arrays] != self._shapes:
            self._learn(arrays)
        parts = [self._head, id_field]
        for tag, array in zip(self._tags, arrays):  # noqa: B905
            parts.append(tag)
            parts.append(array.tobytes())
        return b"".join(parts)

    def _learn(self, arrays: Sequence[NDArray[Any]]) -> None:
        response = encode_response(self._model, "", [*zip(self._wanted, arrays, strict=True)])
        del response.raw_output_contents[:]
        self._head = response.SerializeToString()
        self._tags = [_RAW_TAG + _varint(array.nbytes) for array in arrays]
        self._shapes = [array.shape for array in arrays]


_RAW_TAG = bytes([pb.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER << 3 | 2])


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _framed(model: str, spec: TensorSpec, array: NDArray[Any]) -> bytes:
    what = f"model '{model}': output '{spec.name}'"
    return frame_bytes(as_bytes(what, element) for element in array.ravel(order="C"))
