"""What a request says apart from its id and the contents of its tensors, and what follows from that.

Clients send the same again and again: what was checked of one request need not be checked of the next
whose bytes are the same but for the id and the raw contents, which are as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from google.protobuf.message import DecodeError

from reactant_core.errors import ServingError
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine.port import Arrays
from reactant_worker.models import steps
from reactant_worker.models.catalog import Catalog, Entry, ModelState
from reactant_worker.models.served import ServedModel
from reactant_worker.rpc.decode import decode_inputs
from reactant_worker.rpc.encode import ResponseForm, requested_outputs
from reactant_worker.rpc.parameters import parse_parameters
from reactant_worker.rpc.regions import Regions

# Tags of ModelInferRequest's fields, each of them length-delimited.
_ID, _RAW = 0x1A, 0x3A
_OTHERS = frozenset((0x0A, 0x12, 0x22, 0x2A, 0x32))

_MOST_FORMS = 1024
_LONGEST_FORM = 4096
"""Bytes: a longer one is not worth the memory."""

_BY_VALUE = frozenset(("BOOL", "BYTES"))
"""Datatypes whose contents are looked at, not only measured."""

_NO_REGIONS = Regions()
"""A tensor in shared memory is not found here, so that no form has one."""

Raws = Sequence[tuple[int, int]]
"""Where raw contents begin in a message, and how long they are."""


def split(message: bytes) -> tuple[bytes, bytes, Raws] | None:
    """The bytes of a ModelInferRequest that make its form, its `id` field, and its raw contents.

    None for one that is not written as everybody writes them: raw contents last, no other field twice that
    must not be, nothing unknown.
    """
    position, end = 0, len(message)
    id_start = id_end = form_end = 0
    raws: list[tuple[int, int]] = []
    try:
        while position < end:
            tag, size, start = message[position], message[position + 1], position + 2
            if size > 0x7F:
                size, start = _varint(message, position + 1)
            if tag == _RAW:
                if not raws:
                    form_end = position
                raws.append((start, size))
            elif raws:
                return None
            elif tag == _ID and not id_end:
                id_start, id_end = position, start + size
            elif tag not in _OTHERS:
                return None
            position = start + size
    except IndexError:
        return None
    if position != end or not raws or form_end > _LONGEST_FORM:
        return None
    return message[:id_start] + message[id_end:form_end], message[id_start:id_end], raws


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends; IndexError when it does not, or is none of up to 35 bits."""
    value = 0
    for shift in range(0, 35, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError(position)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What follows from a form for one version of its model, which has no code of its own.

    Attributes:
        timeout_seconds: from its parameters.
        rows, variant: of its submission.
        sizes: bytes of each raw contents, in the order of the message.
        inputs: of the program, in manifest order: shape, dtype, and which raw contents it is.
        response: of the answers.
    """

    entry: Entry
    model: ServedModel
    timeout_seconds: float | None
    rows: int
    variant: int | None
    sizes: Sequence[int]
    inputs: Sequence[tuple[tuple[int, ...], np.dtype[Any], int]]
    response: ResponseForm

    def arrays(self, message: bytes, raws: Raws) -> Arrays | None:
        """The program's inputs as views of a message; None when contents are not as long as they must be."""
        if len(raws) != len(self.sizes):
            return None
        for (_, size), expected in zip(raws, self.sizes):  # noqa: B905
            if size != expected:
                return None
        return tuple([np.ndarray(shape, dtype, message, raws[at][0]) for shape, dtype, at in self.inputs])


class _Known(NamedTuple):
    """A form that was met, and what follows from it: None when nothing does for this version of the model."""

    entry: Entry
    model: ServedModel
    form: Form | None


@final
class Forms:
    """Forms that were met, of the models that serve."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[bytes, _Known] = {}

    def find(self, key: bytes, message: bytes) -> Form | None:
        """What follows from `key`, the form of `message`; None for what has to go the ordinary way."""
        known = self._known.get(key)
        if known is None:
            known = self._learn(message)
            if known is None:
                return None
            if len(self._known) >= _MOST_FORMS:
                self._known.clear()
            self._known[key] = known
        entry, model, form = known
        if (
            entry.model is model
            and entry.state is ModelState.READY
            and self._catalog.get(entry.name) is entry
            and not entry.internal
        ):
            return form
        del self._known[key]
        return None

    def _learn(self, message: bytes) -> _Known | None:
        """Checks a request as the ordinary way does; None when that refuses it, or looks at its contents."""
        try:
            request = pb.ModelInferRequest.FromString(message)
            entry = self._catalog.find(request.model_name, request.model_version)
            model = entry.ready_model()
            if model.meta or model.hooks is not None:
                return _Known(entry, model, None)
            wanted = requested_outputs(model.name, request, model.client_outputs, _NO_REGIONS)
            tensors = decode_inputs(model.name, request, model.client_inputs, _NO_REGIONS)
            parameters = parse_parameters(model.name, request.parameters)
            prepared = steps.prepare(model, tensors)
        except (DecodeError, ServingError):
            return None
        if not prepared.rows or any(spec.dtype.kserve in _BY_VALUE for spec in model.executable_inputs):
            return None
        order = [tensor.name for tensor in request.inputs]
        form = Form(
            entry,
            model,
            timeout_seconds=parameters.timeout_seconds,
            rows=prepared.rows,
            variant=prepared.variant,
            sizes=[tensors[name].nbytes for name in order],
            inputs=[
                (array.shape, array.dtype, order.index(spec.name))
                for spec, array in zip(model.executable_inputs, prepared.inputs, strict=True)
            ],
            response=ResponseForm(model.name, wanted, [spec.name for spec in model.executable_outputs]),
        )
        return _Known(entry, model, form)
