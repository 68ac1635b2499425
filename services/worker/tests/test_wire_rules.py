"""Parameters, requested outputs, response encoding, log settings, admission, IPC names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InternalError, InvalidArgument, ModelUnavailable, ResourceExhausted
from reactant_core.testing import async_test
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Engine
from reactant_worker.models.catalog import Entry
from reactant_worker.models.served import ServedModel
from reactant_worker.models.tensors import check_array
from reactant_worker.pool import WorkPool
from reactant_worker.rpc.admission import Admission, QueueCount
from reactant_worker.rpc.encode import Wanted, encode_response, requested_outputs
from reactant_worker.rpc.parameters import NO_PARAMETERS, parse_parameters
from reactant_worker.rpc.regions import Regions


def parameters(**choices: tuple[str, Any]) -> dict[str, pb.InferParameter]:
    return {key: pb.InferParameter(**{choice: value}) for key, (choice, value) in choices.items()}


def test_w10_custom_parameters_reach_hooks_as_plain_values() -> None:
    given = parameters(
        s=("string_param", "x"),
        b=("bool_param", False),
        i=("int64_param", -1),
        u=("uint64_param", 2**63),
        d=("double_param", 0.5),
    )
    assert dict(parse_parameters("m", given).custom) == {"s": "x", "b": False, "i": -1, "u": 2**63, "d": 0.5}
    assert parse_parameters("m", {}) is NO_PARAMETERS


@pytest.mark.parametrize(
    ("key", "choice", "value", "field", "expected"),
    [
        ("priority", "uint64_param", 1, "priority", 1),
        ("priority", "int64_param", 1, "priority", 1),
        ("timeout", "int64_param", 50_000, "timeout_seconds", 0.05),
        ("timeout", "int64_param", 0, "timeout_seconds", None),
        ("triton_enable_empty_final_response", "bool_param", True, "priority", 0),
    ],
)
def test_w11_reserved_parameters(key: str, choice: str, value: Any, field: str, expected: Any) -> None:
    parsed = parse_parameters("m", parameters(**{key: (choice, value)}))
    assert getattr(parsed, field) == expected
    assert not parsed.custom


@pytest.mark.parametrize(
    ("key", "choice", "value"),
    [
        ("priority", "int64_param", -1),
        ("priority", "string_param", "1"),
        ("priority", "bool_param", True),
        ("timeout", "string_param", "50000"),
        ("timeout", "uint64_param", 5),
        ("timeout", "int64_param", -5),
        ("triton_foo", "int64_param", 1),
        ("triton_enable_empty_final_response", "string_param", "true"),
        ("shared_memory_region", "string_param", "r"),
    ],
)
def test_w11_wrong_reserved_parameters_are_named(key: str, choice: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"model 'm': request parameter '{key}'"):
        parse_parameters("m", parameters(**{key: (choice, value)}))


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'p' has no value"):
        parse_parameters("m", {"p": pb.InferParameter()})


def spec(name: str, datatype: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, BY_KSERVE[datatype], "nab"[: len(dims)], dims, 0)


OUTPUTS = {"A": spec("A", "FP32", -1, 2), "B": spec("B", "BYTES", -1)}


def asking(*names: str) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest()
    for name in names:
        request.outputs.add(name=name)
    return request


def test_requested_outputs_keep_the_order_asked() -> None:
    assert [w.spec.name for w in requested_outputs("m", asking(), OUTPUTS, Regions())] == ["A", "B"]
    assert [w.spec.name for w in requested_outputs("m", asking("B", "A"), OUTPUTS, Regions())] == ["B", "A"]
    with pytest.raises(InvalidArgument, match="unknown requested output 'C'; outputs are 'A', 'B'"):
        requested_outputs("m", asking("C"), OUTPUTS, Regions())
    with pytest.raises(InvalidArgument, match="output 'A' is requested twice"):
        requested_outputs("m", asking("A", "A"), OUTPUTS, Regions())
    request = asking("A")
    request.outputs[0].parameters["classification"].int64_param = 3
    with pytest.raises(InvalidArgument, match="'classification' is not offered"):
        requested_outputs("m", request, OUTPUTS, Regions())


BASE = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize(
    "array",
    [BASE[:, ::2], np.ascontiguousarray(BASE[:, ::2].T).T, BASE[:, ::2].astype(">f4")],
    ids=["strided", "transposed", "big-endian"],
)
def test_w15_outputs_are_c_order_and_little_endian(array: Any) -> None:
    checked = check_array("m returned 'A'", OUTPUTS["A"], array)
    raw = encode_response("m", "", [(Wanted(OUTPUTS["A"]), checked)]).raw_output_contents[0]
    assert np.frombuffer(raw, "<f4").tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("A", np.array([[1, "x"]], object), "as object, expected float32"),
        ("A", np.zeros((1, 2)), "as float64, expected float32"),
        ("A", np.zeros((1, 3), np.float32), r"with shape \[1, 3\], expected \[-1, 2\]"),
        ("A", np.zeros(2, np.float32), r"with shape \[2\]"),
        ("B", np.array([b"a\0"]), "numpy S arrays strip NULs"),
        ("A", [[1.0], [2.0, 3.0]], "returned 'A', which is no array"),
    ],
)
def test_w15_what_a_hook_returns_is_checked(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint):
        check_array(f"postprocess returned '{name}'", OUTPUTS[name], value)


def test_bytes_outputs_take_bytes_and_text_only() -> None:
    array = np.array([b"\xff\0", "é", b""], object)
    raw = encode_response("m", "", [(Wanted(OUTPUTS["B"]), array)]).raw_output_contents[0]
    assert raw == b"\x02\0\0\0\xff\0" + b"\x02\0\0\0\xc3\xa9" + b"\0\0\0\0"
    with pytest.raises(InternalError, match="model 'm': output 'B' holds int"):
        encode_response("m", "", [(Wanted(OUTPUTS["B"]), np.array([1], object))])


class Device:
    """An engine that only says what it has."""

    def __init__(self, depth: int = 0, *, busy: bool = False) -> None:
        self._depth = depth
        self._busy = busy

    def depth(self, _model: str) -> int:
        return self._depth

    def busy(self) -> bool:
        return self._busy


def nothing_queued(engine: Any = None) -> QueueCount:
    loop = asyncio.new_event_loop()
    loop.close()
    return QueueCount(
        engine=cast(Engine, engine or Device()),
        bridge=EngineBridge(loop),
        hook_pool=WorkPool(1, "none"),
        metas=lambda _: 0,
    )


@pytest.mark.parametrize(
    ("depth", "preparing", "busy", "expected"),
    [(3, 0, True, 3), (0, 2, False, 0), (0, 2, True, 2), (3, 2, True, 5)],
)
def test_a_running_hook_counts_once_it_is_bound_to_queue(
    depth: int, preparing: int, busy: bool, expected: int
) -> None:
    entry = Entry("m")
    queued = nothing_queued(Device(depth, busy=busy))
    assert queued(entry) == 0
    entry.model = cast(ServedModel, SimpleNamespace(key="1", meta=False))
    entry.preparing = preparing
    assert queued(entry) == expected


def test_the_cap_and_draining_refuse_before_anything_starts() -> None:
    admission = Admission(max_concurrent_requests=1, max_queue_depth=4, queued=nothing_queued())
    admission.enter()
    with pytest.raises(ResourceExhausted, match="1 requests are in flight") as full:
        admission.enter()
    assert full.value.not_started
    admission.leave()
    admission.draining = True
    with pytest.raises(ModelUnavailable, match="draining") as draining:
        admission.enter()
    assert draining.value.not_started
    assert admission.in_flight == 0


@pytest.mark.slow
@async_test
async def test_a_drain_waits_for_callers_to_hear_of_it() -> None:
    admission = Admission(max_concurrent_requests=0, max_queue_depth=4, queued=nothing_queued())
    admission.draining = True
    waiting = asyncio.ensure_future(admission.wait_quiet(0.3, 10))
    for _ in range(5):
        await asyncio.sleep(0.01)
        with pytest.raises(ModelUnavailable):
            admission.enter()
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
    busy = asyncio.ensure_future(admission.wait_quiet(10, 0.01))
    await asyncio.wait_for(busy, 5)
