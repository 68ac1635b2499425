"""What is no request at all."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.messages import echo
from tests.support.target import Target

from reactant_proto import inference_pb2 as pb

SERVICE = "/inference.GRPCInferenceService"
NOT_A_REQUEST = {
    "junk": b"\xff" * 100,
    "cut short": echo().SerializeToString()[:-5],
    "a name that is not UTF-8": b"\x0a\x02\xff\xfe",
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x07abc",
}


def send(target: Target, path: str, message: bytes) -> bytes:
    """Calls a method with bytes in place of a message."""
    call: Any = target.client.channel.unary_unary(path, request_serializer=None)
    answer: bytes = call(message, timeout=5)
    return answer


def refusal(target: Target, path: str, message: bytes) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        send(target, path, message)
    return caught.value.code()


@pytest.mark.parametrize("method", ["ModelInfer", "ModelReady", "RepositoryIndex"])
@pytest.mark.parametrize("message", NOT_A_REQUEST.values(), ids=NOT_A_REQUEST)
def test_bytes_that_are_no_message(target: Target, method: str, message: bytes) -> None:
    code = refusal(target, f"{SERVICE}/{method}", message)

    # grpcio itself answers UNKNOWN, before anything of ours has run.
    refusals = (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN)
    assert code in refusals
    target.assert_well()


def test_fields_of_a_later_protocol_are_passed_over(target: Target) -> None:
    later = echo().SerializeToString() + b"\xfa\x7f\x03abc"  # field 2047, three bytes

    answer = send(target, f"{SERVICE}/ModelInfer", later)

    assert pb.ModelInferResponse.FromString(answer).model_name == "echo"


@pytest.mark.parametrize(
    "path",
    [f"{SERVICE}/NoSuchMethod", f"{SERVICE}/modelinfer", f"{SERVICE}/", "/inference.Nothing/ModelInfer"],
)
def test_unknown_method_or_service(target: Target, path: str) -> None:
    assert refusal(target, path, b"") is grpc.StatusCode.UNIMPLEMENTED
    target.assert_well()
