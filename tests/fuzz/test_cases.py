"""Each sample of the corpus alone, and what fuzzing has found, one by one."""

from __future__ import annotations

import contextlib
import threading

import grpc
import pytest
from tests.fuzz import frames as f
from tests.fuzz.corpus import CORPUS, INFER, PREAMBLE, UNKNOWN, call, head, in_pieces, stream_of
from tests.fuzz.frames import data, headers, message
from tests.fuzz.gateway import FuzzedGateway
from tests.fuzz.neighbour import Neighbour
from tests.fuzz.raw import RawConnection, answer
from tests.support.client import Client
from tests.support.messages import echo

from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

_MARK = b"a sample"
_EMPTY_INPUT = b"\x2a\x00"


def test_no_sample_of_the_corpus_harms_a_neighbour(gateway: FuzzedGateway) -> None:
    with Neighbour(gateway.process.address) as neighbour:
        for name, sample in CORPUS.items():
            with RawConnection(gateway.process.port, preamble=False) as connection:
                begin = () if sample.opening else PREAMBLE
                with contextlib.suppress(ConnectionError):
                    connection.send(*begin, *sample.make(1), f.ping(_MARK))
                _until_looked_at(connection)
            assert gateway.process.running, name
            assert not gateway.faults(), name
    assert not neighbour.failures
    assert neighbour.outcomes["OK"] > 5


def _until_looked_at(connection: RawConnection) -> None:
    """The mark came back, or the connection was closed, or the gateway waits for more."""
    with contextlib.suppress(AssertionError):
        while (frame := connection.frame()) is not None:
            if frame.kind == f.PING and frame.payload == _MARK:
                return


def test_messages_of_a_stream_that_are_refused_at_once(gateway: FuzzedGateway) -> None:
    """However many come together, each has its answer and the stream ends well."""
    code, body = answer(gateway.process.port, tuple(stream_of(*[b"\x0b"] * 1000)(1)))
    assert code == 0
    assert body.count(b"ModelInferRequest") == 1000


@pytest.mark.parametrize("name", ["shape of a long number", "shape cut off", "shape negative"])
def test_a_batch_axis_that_cannot_be_read_is_the_workers_affair(gateway: FuzzedGateway, name: str) -> None:
    code, _ = answer(gateway.process.port, tuple(CORPUS[name].make(1)))
    # The stand-in answers whatever it is asked.
    assert code in (0, grpc.StatusCode.INVALID_ARGUMENT.value[0])


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param((data(1, b"x"),), id="fault"),
        pytest.param((*call(message(UNKNOWN))(1), data(0, b"x")), id="fault amid a call"),
        pytest.param((f.frame(f.GOAWAY, 0, 0, bytes(8)),), id="goaway"),
        pytest.param((*call(message(INFER))(1), f.frame(f.GOAWAY, 0, 0, bytes(8))), id="goaway amid a call"),
    ],
)
def test_a_connection_that_is_over_is_closed(gateway: FuzzedGateway, sent: tuple[bytes, ...]) -> None:
    """By the gateway: a client that stays silent would keep it for ever."""
    with RawConnection(gateway.process.port) as connection:
        connection.send(*sent)
        connection.wait_closed()


def test_a_name_that_never_comes_holds_nobody_up(gateway: FuzzedGateway) -> None:
    """The beginning of a message is not read again with every byte that comes."""
    with RawConnection(gateway.process.port) as connection:
        connection.send(headers(1, head()))
        connection.until(f.SETTINGS)
        with Neighbour(gateway.process.address) as neighbour:
            with contextlib.suppress(ConnectionError):
                connection.upload(message(_EMPTY_INPUT * (1 << 17)), 64)
            enough = threading.Event()
            enough.wait(0.2)
    assert not neighbour.failures
    assert neighbour.slowest < 1.0


def test_a_message_in_tiny_parts_costs_no_more_memory_than_its_size(gateway: FuzzedGateway) -> None:
    size = 3 << 20
    start = b"\x0a\x04echo\x3a" + _varint(size)
    before = gateway.vitals().resident_bytes
    with RawConnection(gateway.process.port) as connection:
        connection.send(headers(1, head()))
        connection.until(f.SETTINGS)
        connection.upload(message(start, length=len(start) + size), 20)
        connection.upload(bytes(size - 8), 2)
        grown = gateway.vitals().resident_bytes - before
    assert grown < 5 * size


def _varint(value: int) -> bytes:
    # The same encoding as an HPACK integer without its prefix.
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def test_a_path_that_is_no_text_does_not_end_the_gateways_own_server(gateway: FuzzedGateway) -> None:
    code, _ = answer(gateway.process.port, tuple(CORPUS["headers: path not ASCII"].make(1)))
    assert code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    with Client(gateway.process.address) as client:
        assert client.call("ServerReady", pb.ServerReadyRequest()).ok().ready


def test_a_stream_that_announces_its_length(gateway: FuzzedGateway) -> None:
    body = message(INFER) * 2
    length = (b"content-length", b"%d" % len(body))
    code, answered = answer(gateway.process.port, tuple(call(body, b"ModelStreamInfer", length)(1)))
    assert code == 0
    first = pb.ModelStreamInferResponse.FromString(answered[5 : 5 + int.from_bytes(answered[1:5], "big")])
    assert first.error_message == ""


def test_a_body_in_single_bytes(gateway: FuzzedGateway) -> None:
    code, body = answer(gateway.process.port, tuple(in_pieces(message(INFER), 1)(1)))
    assert code == 0
    assert pb.ModelInferResponse.FromString(body[5:]).model_name == "echo"


def test_headers_too_large_for_a_request(gateway: FuzzedGateway) -> None:
    code, _ = answer(gateway.process.port, tuple(CORPUS["headers: 16,100 bytes"].make(1)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def test_headers_too_large_for_anything(gateway: FuzzedGateway) -> None:
    """What is done to the connection of who sends them is its own; nobody else notices."""
    with Client(gateway.process.address) as client, RawConnection(gateway.process.port) as connection:
        client.infer(echo()).ok()
        connection.send(*CORPUS["headers: 64 KiB"].make(1))
        connection.wait_closed()
        client.infer(echo()).ok()
