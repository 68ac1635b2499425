"""Requests checked by what was checked before: none is taken that the ordinary way would read otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from services.worker.tests.direct import N, X, request, serving, spec, version

from reactant_core.errors import ServingError
from reactant_proto import inference_pb2 as pb
from reactant_worker.models import steps
from reactant_worker.models.served import ServedModel
from reactant_worker.rpc.decode import decode_inputs
from reactant_worker.rpc.forms import Form, Forms, split
from reactant_worker.rpc.parameters import parse_parameters
from reactant_worker.rpc.regions import Regions

MODEL = version()


def taken(forms: Forms, message: bytes) -> tuple[Form, Any, bytes] | None:
    """What is made of a message, as `DirectInfer` does it."""
    parts = split(message)
    if parts is None:
        return None
    form = forms.find(parts[0], message)
    if form is None or not parts[1].isascii():
        return None
    arrays = form.arrays(message, parts[2])
    return None if arrays is None else (form, arrays, parts[1])


def assert_as_ordinary(forms: Forms, message: bytes) -> bool:
    """Returns whether a message is taken; if so, the ordinary way must make the same of it."""
    found = taken(forms, message)
    if found is None:
        return False
    form, arrays, id_field = found
    parsed = pb.ModelInferRequest.FromString(message)
    prepared = steps.prepare(MODEL, decode_inputs("m", parsed, MODEL.client_inputs, Regions()))
    assert (form.rows, form.variant) == (prepared.rows, prepared.variant)
    assert form.timeout_seconds == parse_parameters("m", parsed.parameters).timeout_seconds
    for mine, expected in zip(arrays, prepared.inputs, strict=True):
        assert mine.dtype == expected.dtype
        assert_array_equal(mine, expected)
    assert pb.ModelInferResponse.FromString(id_field).id == parsed.id
    return True


@given(rows=st.integers(1, 4), ids=st.lists(st.text(max_size=200), min_size=2, max_size=4))
def test_every_request_of_a_form_is_read_as_the_first_one(rows: int, ids: list[str]) -> None:
    forms = Forms(serving(MODEL)[0])
    for number, request_id in enumerate(ids):
        message = request(rows, request_id=request_id, start=number).SerializeToString()
        assert assert_as_ordinary(forms, message) == (request_id.isascii() and len(request_id) < 128)


@given(st.data())
def test_a_damaged_request_is_taken_only_as_the_ordinary_way_reads_it(data: st.DataObject) -> None:
    forms = Forms(serving(MODEL)[0])
    whole = request(request_id="some id").SerializeToString()
    assert assert_as_ordinary(forms, whole)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(("change", "insert", "remove", "cut"))):
            case "change":
                damaged[at] = data.draw(st.integers(0, 255))
            case "insert":
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=8))
            case "remove" if len(damaged) > 1:
                del damaged[at]
            case _ if at:
                del damaged[at:]
            case _:
                pass
    assert_as_ordinary(forms, bytes(damaged))


def typed(message: pb.ModelInferRequest) -> None:
    del message.raw_input_contents[:]
    message.inputs[0].contents.fp32_contents.extend([0.0] * 4)


def shared(message: pb.ModelInferRequest) -> None:
    message.inputs[1].parameters["shared_memory_region"].string_param = "r"
    message.inputs[1].parameters["shared_memory_byte_size"].int64_param = 16
    del message.raw_input_contents[1]


def asks_for_shared(message: pb.ModelInferRequest) -> None:
    message.outputs.add(name="y").parameters["shared_memory_region"].string_param = "r"


def too_short(message: pb.ModelInferRequest) -> None:
    message.raw_input_contents[0] = b"\0" * 15


def one_too_many(message: pb.ModelInferRequest) -> None:
    message.raw_input_contents.append(b"")


def unknown_output(message: pb.ModelInferRequest) -> None:
    message.outputs.add(name="z")


def reserved(message: pb.ModelInferRequest) -> None:
    message.parameters["triton_foo"].int64_param = 1


def other_model(message: pb.ModelInferRequest) -> None:
    message.model_name = "n"


@pytest.mark.parametrize(
    "change",
    [typed, shared, asks_for_shared, too_short, one_too_many, unknown_output, reserved, other_model],
)
def test_what_the_ordinary_way_has_to_say_something_about_is_left_to_it(change: Any) -> None:
    forms = Forms(serving(MODEL)[0])
    assert taken(forms, request().SerializeToString()) is not None
    message = request()
    change(message)
    for _ in range(2):
        assert taken(forms, message.SerializeToString()) is None


@pytest.mark.parametrize(
    "model",
    [
        version(hooks=object()),
        version(meta=True),
        version(executable_inputs=(spec("n", "BOOL", -1), X)),
        version(sizes=(1,)),
    ],
    ids=["hooks", "meta", "bool", "too small"],
)
def test_a_model_it_is_not_for(model: ServedModel) -> None:
    forms = Forms(serving(model)[0])
    for _ in range(2):
        assert taken(forms, request().SerializeToString()) is None


def test_a_form_holds_for_the_version_it_was_checked_for() -> None:
    catalog, entry = serving(MODEL)
    forms, message = Forms(catalog), request().SerializeToString()
    first = taken(forms, message)
    assert first is not None
    later = version("k2", executable_inputs=(X, N))
    catalog.ready(entry, later)
    assert taken(forms, message) is None  # found out of date
    second = taken(forms, message)
    assert second is not None
    assert second[0].model is later
    assert [array.ndim for array in first[1]] == [1, 2]
    assert [array.ndim for array in second[1]] == [2, 1]

    catalog.unloading(entry)
    assert taken(forms, message) is None
    catalog.remove(entry)
    assert taken(forms, message) is None
    catalog.ready(catalog.begin("m", internal=True), version("k3"))
    hidden = catalog.get("m")
    assert hidden is not None
    hidden.internal = True
    assert taken(forms, message) is None


def test_many_forms_cost_a_bounded_number_of_bytes() -> None:
    forms = Forms(serving(MODEL)[0])
    for number in range(1100):
        message = request()
        message.parameters["custom"].int64_param = number
        assert taken(forms, message.SerializeToString()) is not None
    assert len(forms._known) <= 1024
    message = request()
    message.parameters["custom"].string_param = "x" * 5000
    assert taken(forms, message.SerializeToString()) is None


@pytest.mark.parametrize("message", [b"", b"\x0a", b"\x3a", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_what_is_no_message(message: bytes) -> None:
    assert split(message) is None
    if message:
        with pytest.raises((DecodeError, ServingError)):
            pb.ModelInferRequest.FromString(message)


def test_lengths_of_more_than_one_byte() -> None:
    model = version(sizes=(1, 4000))
    forms = Forms(serving(model)[0])
    for start in (0, 1):
        message = request(3000, request_id="i" * 127, start=start).SerializeToString()
        found = taken(forms, message)
        assert found is not None
        assert_array_equal(found[1][1].ravel(), np.arange(start, start + 6000, dtype=np.float32))
