"""ModelStreamInfer: one response per request, in order, errors in band."""

from __future__ import annotations

import queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tests.support.hooklog import HookLog
from tests.support.messages import Input, arrays, echo, floats, infer, slow_hook
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

WAIT_SECONDS = 20.0


def test_answers_come_in_the_order_of_the_requests(target: Target) -> None:
    # The first takes longest; its answer still comes first.
    requests = [slow_hook(0.3, id="slow"), *(echo(start=float(i), id=str(i)) for i in range(100))]

    answers = list(target.client.stub.ModelStreamInfer(iter(requests), timeout=WAIT_SECONDS))

    assert [a.infer_response.id for a in answers] == ["slow", *map(str, range(100))]
    for index, answer in enumerate(answers[1:]):
        assert not answer.error_message
        np.testing.assert_array_equal(arrays(answer.infer_response)["Y"], floats(1, start=float(index)))
        assert answer.infer_response.parameters["triton_final_response"].bool_param
    target.assert_well()


def test_a_bad_message_is_an_error_in_band_and_the_stream_goes_on(target: Target) -> None:
    requests = [
        echo(id="a"),
        infer("nope", id="b"),
        infer("echo", Input("X", "FP32", [1, 5], bytes(20)), id="c"),
        echo(id="d"),
    ]

    answers = list(target.client.stub.ModelStreamInfer(iter(requests), timeout=WAIT_SECONDS))

    assert [a.infer_response.id for a in answers] == ["a", "b", "c", "d"]
    assert [bool(a.error_message) for a in answers] == [False, True, True, False]
    assert "nope" in answers[1].error_message
    assert "'X'" in answers[2].error_message
    assert all(a.infer_response.parameters["triton_final_response"].bool_param for a in answers)
    target.assert_well()


def test_what_an_error_in_band_holds(target: Target) -> None:
    (answer,) = target.client.stub.ModelStreamInfer(iter([infer("nope", id="é")]), timeout=WAIT_SECONDS)

    expected = pb.ModelStreamInferResponse(error_message="model 'nope' is not found")
    expected.infer_response.model_name, expected.infer_response.id = "nope", "é"
    expected.infer_response.parameters["triton_final_response"].bool_param = True
    assert answer == expected


@pytest.mark.parametrize("metadata", [(), (("reactant-stream", "1"),)], ids=["without", "with"])
def test_a_unary_answer_is_final_when_the_request_says_it_is_of_a_stream(
    target: Target, metadata: tuple[tuple[str, str], ...]
) -> None:
    answer = target.client.infer(echo(id="a"), metadata=metadata).ok()

    final = {"triton_final_response": pb.InferParameter(bool_param=True)}
    assert dict(answer.parameters) == (final if metadata else {})
    np.testing.assert_array_equal(arrays(answer)["Y"], floats(1, start=1.0))


def test_an_empty_stream_ends_at_once(target: Target) -> None:
    assert not list(target.client.stub.ModelStreamInfer(iter([]), timeout=WAIT_SECONDS))


def test_a_cancelled_stream_drops_what_waits(target: Target, hook_log: HookLog) -> None:
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    call = target.client.stub.ModelStreamInfer(iter(messages.get, None), timeout=WAIT_SECONDS)
    messages.put(slow_hook(0.5, id="stream-begun"))
    eventually_sync(lambda: hook_log.has("begin stream-begun"))

    call.cancel()

    messages.put(None)
    with pytest.raises(grpc.RpcError) as ended:
        next(call)
    assert ended.value.code() is grpc.StatusCode.CANCELLED
    target.assert_well()


def test_triton_streams(target: Target) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with triton.InferenceServerClient(target.process.address) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        tensor = triton.InferInput("X", [1, 4], "FP32")
        for index in range(10):
            tensor.set_data_from_numpy(floats(1, start=float(index)))
            client.async_stream_infer("echo", [tensor], request_id=str(index))
        for index in range(10):
            result, error = answers.get(timeout=WAIT_SECONDS)
            assert error is None
            np.testing.assert_array_equal(result.as_numpy("Y"), floats(1, start=float(index)))
        client.async_stream_infer("nope", [tensor])
        result, error = answers.get(timeout=WAIT_SECONDS)
        assert "nope" in str(error)
        client.stop_stream()
    target.assert_well()
