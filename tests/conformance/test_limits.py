"""Message sizes (case W13): below the limit served, above it refused, the connection usable either way."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tests.support.client import Reply
from tests.support.messages import Input, arrays, framed, infer, tensor, text
from tests.support.settings import MESSAGE_LIMIT
from tests.support.target import Target

from reactant_proto import inference_pb2 as pb

MEBI = 1 << 20


def blob(size: int, *, reply: int = 0) -> pb.ModelInferRequest:
    return infer(
        "blob", tensor("blob", text(b"\x5a" * size)), tensor("reply_size", np.array([reply], np.int64))
    )


def blob_of_message(size: int) -> pb.ModelInferRequest:
    """A request whose encoded message has exactly `size` bytes."""
    request = blob(size)
    while (surplus := request.ByteSize() - size) > 0:
        request = blob(len(request.raw_input_contents[0]) - 4 - surplus)
    assert request.ByteSize() == size
    return request


def assert_received(reply: Reply, request: pb.ModelInferRequest) -> None:
    content = request.raw_input_contents[0][4:]
    outputs = arrays(reply.ok())
    assert outputs["received"].tolist() == [len(content)]
    assert outputs["crc"].tolist() == [zlib.crc32(content)]


def assert_too_large(reply: Reply) -> None:
    assert reply.code is grpc.StatusCode.RESOURCE_EXHAUSTED, f"{reply.code}: {reply.details}"
    assert reply.seconds < 5


@pytest.fixture
def small(explicit: Target) -> Iterator[Target]:
    explicit.client.load("blob").ok()
    yield explicit
    explicit.client.unload("blob").ok()


@pytest.mark.slow
@pytest.mark.parametrize("size", [5 * MEBI, 64 * MEBI])
def test_w13_request_beyond_the_usual_default(target: Target, size: int) -> None:
    request = blob(size)

    assert_received(target.client.infer(request), request)

    target.assert_well()


@pytest.mark.slow
def test_w13_response_beyond_the_usual_default(target: Target) -> None:
    outputs = arrays(target.client.infer(blob(1, reply=64 * MEBI)).ok())

    assert outputs["reply"][0] == b"\xa5" * (64 * MEBI)
    target.assert_well()


@pytest.mark.parametrize("below", [1000, 1, 0])
def test_w13_request_up_to_the_limit(small: Target, below: int) -> None:
    request = blob_of_message(MESSAGE_LIMIT - below)

    assert_received(small.client.infer(request), request)


@pytest.mark.parametrize("above", [1, 1000, 8 * MEBI])
def test_w13_request_above_the_limit(small: Target, above: int) -> None:
    assert_too_large(small.client.infer(blob_of_message(MESSAGE_LIMIT + above)))

    small.assert_well()


@pytest.mark.parametrize("rpc", ["ModelReady", "RepositoryIndex"])
def test_w13_any_rpc_above_the_limit(small: Target, rpc: str) -> None:
    name = "x" * (MESSAGE_LIMIT + 1)
    request = (
        pb.ModelReadyRequest(name=name)
        if rpc == "ModelReady"
        else pb.RepositoryIndexRequest(repository_name=name)
    )

    assert_too_large(small.client.call(rpc, request))

    small.assert_well()


@pytest.mark.slow
def test_w13_neighbours_of_a_request_above_the_limit(small: Target) -> None:
    """Other calls of the same connection are answered while the large one is refused."""
    good, large = blob(1000), blob(2 * MEBI)
    for _ in range(5):
        first, refused, second = [small.client.start_infer(request) for request in (good, large, good)]
        assert_received(first.reply(), good)
        assert_too_large(refused.reply())
        assert_received(second.reply(), good)
    small.assert_well()


def test_w13_the_limit_is_about_the_message_not_its_compressed_form(small: Target) -> None:
    """Ten megabytes of one byte compress to a few thousand."""
    assert_too_large(small.client.infer(blob(10 * MEBI), compression=grpc.Compression.Gzip))

    small.assert_well()


def test_w13_response_below_the_limit(small: Target) -> None:
    outputs = arrays(small.client.infer(blob(1, reply=MESSAGE_LIMIT - 1000)).ok())

    assert len(outputs["reply"][0]) == MESSAGE_LIMIT - 1000


def test_w13_response_above_the_limit(small: Target) -> None:
    assert_too_large(small.client.infer(blob(1, reply=MESSAGE_LIMIT)))

    assert small.page().by_code("blob") == {"RESOURCE_EXHAUSTED": 1}
    small.assert_well()


@pytest.mark.slow
def test_w1_hostile_shapes_take_no_memory(target: Target) -> None:
    hostile = [
        infer("echo", Input("X", "FP32", shape, bytes(16)))
        for shape in ([-1, 4], [2**32 + 1, 4], [2**62, 4], [2**31, 2**31, 4], [4], [])
    ]
    hostile += [
        infer("echo_bytes", Input("text", "BYTES", shape, framed([b"a"])))
        for shape in ([2**40], [2**62], [2**63 - 1])
    ]
    hostile.append(infer("echo", Input("X", "FP32", [2**40, 4], typed={"fp32_contents": [1.0]})))
    target.client.infer(hostile[0])
    before = target.process.resident_bytes()

    for request in hostile * 10:
        reply = target.client.infer(request)
        assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
        assert reply.seconds < 1

    assert target.process.resident_bytes() - before < 50 * MEBI
