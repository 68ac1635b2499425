"""What clients send, sound and hostile: the seeds that `mutate` changes.

A sample is a list of frames made for a stream, so that several can follow each other on a connection, or the
whole beginning of a connection (`opening`).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import ngh2
import numpy as np
from grpc_health.v1.health_pb2 import HealthCheckRequest
from tests.fuzz import frames as f
from tests.fuzz.frames import Pairs, data, frame, headers, message, reset, settings, window_update
from tests.support.messages import echo, infer, tensor

from reactant_proto import inference_pb2 as pb

Frames = list[bytes]

_SERVICE: Final = b"/inference.GRPCInferenceService/"
_WATCH: Final = b"/grpc.health.v1.Health/Watch"
_CHECK: Final = b"/grpc.health.v1.Health/Check"

PREAMBLE: Final = (f.PREFACE, settings(), frame(f.SETTINGS, f.ACK, 0), window_update(0, 1 << 30))
"""How a sound connection begins."""


@final
@dataclass(frozen=True, slots=True)
class Sample:
    """One seed.

    Attributes:
        make: the frames for a stream; of an opening, for stream 1.
        opening: it stands at the beginning of a connection, in place of the preface.
        costly: long, so that it is drawn less often.
    """

    make: Callable[[int], Frames]
    opening: bool = False
    costly: bool = False


def head(name: bytes = b"ModelInfer", /, *extra: tuple[bytes, bytes], **changed: bytes | None) -> Pairs:
    """Headers of a sound call; `changed` by pseudo-header without the colon, None leaves it out."""
    path = name if name.startswith(b"/") else _SERVICE + name
    sound = {"method": b"POST", "scheme": b"http", "path": path, "authority": b"fuzz"}
    pseudo: dict[str, bytes | None] = {**sound, **changed}
    fields = [(b":" + key.encode(), value) for key, value in pseudo.items() if value is not None]
    return [*fields, (b"content-type", b"application/grpc"), (b"te", b"trailers"), *extra]


INFER: Final = echo(2, id="fuzz").SerializeToString()
LARGE: Final = infer("echo", tensor("X", np.zeros((600, 4), np.float32))).SerializeToString()
UNKNOWN: Final = echo(model="unknown").SerializeToString()
SHARED: Final = infer("echo", tensor("X", np.zeros((1, 4), np.float32)), parameters={"a": 1, "b": "c"})
SHARED.inputs[0].parameters["shared_memory_region"].string_param = "region"
_REGION: Final = SHARED.SerializeToString()
_EMPTY: Final = b"\x2a\x00"  # an input without content
_LONG_NUMBER: Final = b"\xff" * 11


def call(
    body: bytes, method: bytes = b"ModelInfer", *extra: tuple[bytes, bytes], end: bool = True
) -> Callable[[int], Frames]:
    """A call with `body`, length prefixes included, in one DATA frame (or more past 16 KiB)."""

    def make(stream: int) -> Frames:
        parts = [body[at : at + 16384] for at in range(0, len(body), 16384)] or [b""]
        last = len(parts) - 1
        sent = [data(stream, part, end=end and at == last) for at, part in enumerate(parts)]
        return [headers(stream, head(method, *extra)), *sent]

    return make


def stream_of(*bodies: bytes) -> Callable[[int], Frames]:
    """A ModelStreamInfer of these messages."""
    return call(b"".join(map(message, bodies)), b"ModelStreamInfer")


def in_pieces(body: bytes, size: int, method: bytes = b"ModelInfer") -> Callable[[int], Frames]:
    """A call whose body comes in DATA frames of `size` bytes."""

    def make(stream: int) -> Frames:
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        sent = [data(stream, part, end=part is parts[-1]) for part in parts]
        return [headers(stream, head(method)), *sent]

    return make


def only_headers(*pairs: tuple[bytes, bytes], **changed: bytes | None) -> Callable[[int], Frames]:
    """A call with odd headers."""
    return lambda stream: [
        headers(stream, head(b"ModelInfer", *pairs, **changed)),
        data(stream, message(INFER), end=True),
    ]


def _raw_call(block: bytes) -> Callable[[int], Frames]:
    """A HEADERS frame with this block, then a message."""
    return lambda stream: [
        frame(f.HEADERS, f.END_HEADERS, stream, block),
        data(stream, message(INFER), end=True),
    ]


def _recorded(calls: Sequence[tuple[bytes, bytes]]) -> Callable[[int], Frames]:
    """What the ngh2 client writes for these calls: Huffman-coded, with a dynamic table."""

    def make(_: int) -> Frames:
        client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        client.initiate_connection({})
        for method, body in calls:
            stream = client.send_request(tuple(head(method)))
            client.send_data(stream, body, end_stream=True)
        written = bytes(client.data_to_send(1 << 20))
        return [f.PREFACE, *split(written[len(f.PREFACE) :])]

    return make


def split(written: bytes) -> Frames:
    """The frames of a sound byte string."""
    found = []
    at = 0
    while at < len(written):
        size = f.HEADER_BYTES + int.from_bytes(written[at : at + 3], "big")
        found.append(written[at : at + size])
        at += size
    return found


def _batch_input(shape: bytes) -> bytes:
    """A request of `echo` whose input X has these bytes as its field `shape`."""
    x = b"\x0a\x01X" + b"\x1a" + bytes((len(shape),)) + shape
    return b"\x0a\x04echo" + b"\x2a" + bytes((len(x),)) + x


def _continued(stream: int, block: bytes, pieces: int, *, ended: bool = True) -> Frames:
    step = max(1, len(block) // pieces)
    parts = [block[at : at + step] for at in range(0, len(block), step)]
    sent = [frame(f.HEADERS, 0, stream, parts[0])]
    sent += [frame(f.CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    return [*sent, frame(f.CONTINUATION, f.END_HEADERS if ended else 0, stream, parts[-1])]


def _too_large(stream: int, size: int) -> Frames:
    block = f.hpack([*head(), (b"x-large", b"a" * size)])
    return [*_continued(stream, block, 1 + size // 12_000), data(stream, message(INFER), end=True)]


def _bomb(stream: int) -> Frames:
    """One field of 4 KiB in the dynamic table, named 3,000 times."""
    block = f.hpack([*head(), (b"x-bomb", b"b" * 4000)], indexed=True)
    return [frame(f.HEADERS, f.END_HEADERS, stream, block + b"\xbe" * 3000)]


_SOUND: Final[Mapping[str, Sample]] = {
    "infer": Sample(call(message(INFER))),
    "infer large": Sample(call(message(LARGE))),
    "infer shared memory": Sample(call(message(_REGION))),
    "infer unknown model": Sample(call(message(UNKNOWN))),
    "infer gzip": Sample(
        call(message(gzip.compress(INFER), flag=1), b"ModelInfer", (b"grpc-encoding", b"gzip"))
    ),
    "infer deflate": Sample(
        call(message(zlib.compress(INFER), flag=1), b"ModelInfer", (b"grpc-encoding", b"deflate"))
    ),
    "infer deadline": Sample(call(message(INFER), b"ModelInfer", (b"grpc-timeout", b"500m"))),
    "infer cancelled": Sample(lambda s: [*call(message(INFER))(s), reset(s)]),
    "infer given up": Sample(lambda s: [*call(message(INFER)[:20], end=False)(s), reset(s)]),
    "infer padded": Sample(
        lambda s: [
            headers(s, head()),
            frame(f.DATA, f.PADDED | f.END_STREAM, s, b"\x20" + message(INFER) + bytes(32)),
        ]
    ),
    "infer in bytes": Sample(in_pieces(message(INFER), 1)),
    "stream": Sample(stream_of(INFER, INFER, INFER)),
    "stream in pieces": Sample(in_pieces(message(INFER) * 4, 7, b"ModelStreamInfer")),
    "stream open": Sample(call(message(INFER) * 2, b"ModelStreamInfer", end=False)),
    "stream of many": Sample(stream_of(*[INFER] * 60)),
    "ready": Sample(call(message(b""), b"ServerReady")),
    "model ready": Sample(
        call(message(pb.ModelReadyRequest(name="echo").SerializeToString()), b"ModelReady")
    ),
    "index": Sample(call(message(b""), b"RepositoryIndex")),
    "statistics": Sample(call(message(b""), b"ModelStatistics")),
    "region status": Sample(call(message(b""), b"SystemSharedMemoryStatus")),
    "check": Sample(call(message(b""), _CHECK)),
    "check model": Sample(call(message(HealthCheckRequest(service="echo").SerializeToString()), _CHECK)),
    "watch": Sample(call(message(b""), _WATCH)),
    "recorded infer": Sample(_recorded([(b"ModelInfer", message(INFER))] * 3), opening=True),
    "recorded mixed": Sample(
        _recorded(
            [
                (b"ModelStreamInfer", message(INFER) * 2),
                (b"ServerReady", message(b"")),
                (b"ModelInfer", message(LARGE)),
                (_CHECK, message(b"")),
            ]
        ),
        opening=True,
    ),
}

_MESSAGES: Final[Mapping[str, Sample]] = {
    "no message": Sample(call(b"")),
    "empty message": Sample(call(message(b""))),
    "empty message in a stream": Sample(stream_of(b"", b"", INFER)),
    "two messages": Sample(call(message(INFER) * 2)),
    "message cut off": Sample(call(message(INFER)[:-3])),
    "prefix cut off": Sample(call(message(INFER)[:3])),
    "prefix too short": Sample(call(message(INFER, length=3))),
    "prefix too long": Sample(call(message(INFER, length=len(INFER) + 9))),
    "prefix of 4 GiB": Sample(call(message(INFER, length=2**32 - 1))),
    "prefix of 500 MB": Sample(call(message(INFER, length=500_000_000))),
    "prefix of 4 GiB in a stream": Sample(call(message(INFER, length=2**32 - 1), b"ModelStreamInfer")),
    "stream cut off": Sample(call(message(INFER)[:-3], b"ModelStreamInfer")),
    "stream of refused": Sample(stream_of(*[b"\x0b"] * 1000)),
    "stream of empty": Sample(stream_of(*[b""] * 2000), costly=True),
    "stream compressed junk": Sample(
        call(message(b"junk", flag=1) * 3, b"ModelStreamInfer", (b"grpc-encoding", b"gzip"))
    ),
    "compressed without encoding": Sample(call(message(INFER, flag=1))),
    "compressed junk": Sample(
        call(message(b"\x1f\x8bjunk" * 9, flag=1), b"ModelInfer", (b"grpc-encoding", b"gzip"))
    ),
    "compressed bomb": Sample(
        call(message(gzip.compress(bytes(1 << 20)), flag=1), b"ModelInfer", (b"grpc-encoding", b"gzip"))
    ),
    "compressed cut off": Sample(
        call(message(gzip.compress(INFER)[:20], flag=1), b"ModelInfer", (b"grpc-encoding", b"gzip"))
    ),
    "encoding unknown": Sample(call(message(INFER, flag=1), b"ModelInfer", (b"grpc-encoding", b"snappy"))),
    "flag of 255": Sample(call(message(INFER, flag=255))),
    "group": Sample(call(message(b"\x0b\x0c"))),
    "wire type 7": Sample(call(message(b"\x0f"))),
    "long number": Sample(call(message(_LONG_NUMBER))),
    "long length": Sample(call(message(b"\x0a" + _LONG_NUMBER + b"echo"))),
    "field past the end": Sample(call(message(b"\x0a\x04echo\x2a\xff\xff\xff\xff\x0f"))),
    "name not UTF-8": Sample(call(message(b"\x0a\x04\xff\xfe\xfd\xfc"))),
    "name twice": Sample(call(message(b"\x0a\x04echo\x0a\x03xyz"))),
    "name of 60 KiB": Sample(call(message(b"\x0a\xe0\xd4\x03" + b"n" * 60_000))),
    "name late": Sample(call(message(_EMPTY * 1000 + b"\x0a\x04echo"))),
    "name never, in pieces": Sample(in_pieces(message(_EMPTY * 8_000), 32), costly=True),
    "shape of a long number": Sample(call(message(_batch_input(_LONG_NUMBER)))),
    "shape cut off": Sample(call(message(_batch_input(b"\xff\xff")))),
    "shape negative": Sample(call(message(_batch_input(b"\xff" * 9 + b"\x01")))),
    "region cut off": Sample(call(message(_REGION[: _REGION.find(b"region") + 9]))),
    "random protobuf": Sample(call(message(bytes(range(1, 120))))),
    "raw first": Sample(call(message(b"\x3a\x04abcd" + INFER))),
}

_HEADERS: Final[Mapping[str, Sample]] = {
    f"headers: {name}": Sample(make)
    for name, make in {
        "GET": only_headers(method=b"GET"),
        "CONNECT": only_headers(method=b"CONNECT"),
        "odd method": only_headers(method=b"P OST"),
        "no method": only_headers(method=None),
        "no path": only_headers(path=None),
        "empty path": only_headers(path=b""),
        "path without slash": only_headers(path=b"inference"),
        "path not ASCII": only_headers(path=b"/\xff\xfe"),
        "path of 8 KiB": only_headers(path=b"/" + b"p" * 8000),
        "path unknown": only_headers(path=_SERVICE + b"Nope"),
        "no scheme": only_headers(scheme=None),
        "odd scheme": only_headers(scheme=b"ftp"),
        "no authority": only_headers(authority=None),
        "odd authority": only_headers(authority=b"a@b:c/\x7f"),
        "path twice": only_headers((b":path", b"/x")),
        "response pseudo-header": only_headers((b":status", b"200")),
        "unknown pseudo-header": only_headers((b":odd", b"1")),
        "protocol": only_headers((b":protocol", b"websocket")),
        "empty name": only_headers((b"", b"x")),
        "upper case": only_headers((b"X-Upper", b"x")),
        "NUL": only_headers((b"x-nul", b"a\0b")),
        "newline": only_headers((b"x-line", b"a\r\nb: c")),
        "not ASCII": only_headers((b"x-high", b"\x80\xff")),
        "connection": only_headers((b"connection", b"close")),
        "transfer-encoding": only_headers((b"transfer-encoding", b"chunked")),
        "te": only_headers((b"te", b"gzip")),
        "host": only_headers((b"host", b"other")),
        "hop": only_headers((b"reactant-hop", b"1")),
        "stream": only_headers((b"reactant-stream", b"1")),
        "not-started": only_headers((b"reactant-not-started", b"1")),
        "grpc-status": only_headers((b"grpc-status", b"99999999999")),
        "many": only_headers(*[(b"x-%d" % at, b"y") for at in range(300)]),
        "bin junk": only_headers((b"x-bin", b"!!!!"), (b"grpc-trace-bin", b"\xff")),
        "content-length too short": only_headers((b"content-length", b"3")),
        "content-length too long": only_headers((b"content-length", b"100000")),
        "content-length negative": only_headers((b"content-length", b"-1")),
        "content-length twice": only_headers((b"content-length", b"3"), (b"content-length", b"4")),
        "content-length of 2^80": only_headers((b"content-length", b"%d" % 2**80)),
        **{
            f"timeout {value.decode()}": only_headers((b"grpc-timeout", value))
            for value in (b"", b"-1S", b"1", b"S", b"0n", b"1n", b"99999999H", b"999999999S", b"1x", b"1.5S",
                          b"0x1S", b"\xb2S".decode("latin-1").encode(), b" 1S", b"+1S")
        },
        "index 0": _raw_call(b"\x80"),
        "index 10,000": _raw_call(f.integer(10_000, 7, 0x80)),
        "integer without end": _raw_call(b"\xff" * 12),
        "length past the block": _raw_call(b"\x00\x7f\xff\xff\xff\x07"),
        "Huffman junk": _raw_call(b"\x00\x84\xff\xff\xff\xff\x00"),
        "table size update of 4 GiB": _raw_call(f.integer(2**32 - 1, 5, 0x20) + f.hpack(head())),
        "table size update at the end": _raw_call(f.hpack(head()) + b"\x20"),
        "15,500 bytes": lambda s: _too_large(s, 15_500),
        "16,100 bytes": lambda s: _too_large(s, 16_100),
        "64 KiB": lambda s: _too_large(s, 65_536),
        "padding too long": lambda s: [
            frame(f.HEADERS, f.END_HEADERS | f.PADDED, s, b"\xff" + f.hpack(head()))
        ],
        "depends on itself": lambda s: [
            frame(f.HEADERS, f.END_HEADERS | f.PRIORITIZED, s, s.to_bytes(4, "big") + b"\1" + f.hpack(head()))
        ],
    }.items()
}  # fmt: skip

_FRAMES: Final[Mapping[str, Sample]] = {
    "data on an idle stream": Sample(lambda s: [data(s, message(INFER), end=True)]),
    "data on stream 0": Sample(lambda s: [data(0, b"x")]),
    "data after the end": Sample(lambda s: [*call(message(INFER))(s), data(s, b"more")]),
    "data after a reset": Sample(
        lambda s: [*call(message(INFER), end=False)(s), reset(s), data(s, b"x" * 999)]
    ),
    "data padding too long": Sample(lambda s: [headers(s, head()), frame(f.DATA, f.PADDED, s, b"\xffabc")]),
    "stream id even": Sample(lambda s: call(message(INFER))(s + 1)),
    "stream id 0": Sample(lambda s: call(message(INFER))(0)),
    "stream id backwards": Sample(lambda s: [*call(message(INFER))(s + 2), *call(message(INFER))(s)]),
    "stream id reused": Sample(lambda s: call(message(INFER))(s) * 2),
    "stream id largest": Sample(lambda s: call(message(INFER))(2**31 - 1)),
    "stream id reserved bit": Sample(lambda s: call(message(INFER))(s | 1 << 31)),
    "headers twice": Sample(lambda s: [headers(s, head()), headers(s, head())]),
    "trailers without end": Sample(
        lambda s: [*call(message(INFER), end=False)(s), headers(s, [(b"x-trailer", b"1")])]
    ),
    "trailers": Sample(
        lambda s: [
            *call(message(INFER), end=False)(s),
            headers(s, [(b"x-trailer", b"1")], flags=f.END_HEADERS | f.END_STREAM),
        ]
    ),
    "trailers with pseudo-headers": Sample(
        lambda s: [
            *call(message(INFER), end=False)(s),
            headers(s, head(), flags=f.END_HEADERS | f.END_STREAM),
        ]
    ),
    "trailers only": Sample(lambda s: [headers(s, head(), flags=f.END_HEADERS | f.END_STREAM)]),
    "headers without end": Sample(lambda s: [headers(s, head(), flags=0)]),
    "continuation of nothing": Sample(lambda s: [frame(f.CONTINUATION, f.END_HEADERS, s, b"")]),
    "continuation interrupted": Sample(
        lambda s: [headers(s, head(), flags=0), f.ping(b"12345678"), frame(f.CONTINUATION, f.END_HEADERS, s)]
    ),
    "continuation of another stream": Sample(
        lambda s: [headers(s, head(), flags=0), frame(f.CONTINUATION, f.END_HEADERS, s + 2)]
    ),
    "continuation flood": Sample(
        lambda s: [headers(s, head(), flags=0), *[frame(f.CONTINUATION, 0, s, b"")] * 2000], costly=True
    ),
    "continuation flood with fields": Sample(
        lambda s: [
            headers(s, head(), flags=0),
            *[frame(f.CONTINUATION, 0, s, f.hpack([(b"a", b"b")]))] * 500,
        ],
        costly=True,
    ),
    "HPACK bomb": Sample(_bomb, costly=True),
    "frame of 16 MiB announced": Sample(lambda s: [frame(f.DATA, 0, s, b"x", length=2**24 - 1)]),
    "frame of 80 KiB": Sample(
        lambda s: [headers(s, head()), frame(f.DATA, 0, s, bytes(80_000))], costly=True
    ),
    "frame of an unknown kind": Sample(
        lambda s: [frame(0x42, 0xFF, s, b"whatever"), *call(message(INFER))(s)]
    ),
    "settings of an odd length": Sample(lambda s: [frame(f.SETTINGS, 0, 0, b"12345")]),
    "settings on a stream": Sample(lambda s: [frame(f.SETTINGS, 0, s)]),
    "settings acknowledged with content": Sample(lambda s: [frame(f.SETTINGS, f.ACK, 0, b"123456")]),
    "settings acknowledged unasked": Sample(lambda s: [frame(f.SETTINGS, f.ACK, 0)] * 5),
    "settings: window of 2^31": Sample(lambda s: [settings((4, 2**31))]),
    "settings: window 0": Sample(lambda s: [settings((4, 0)), *call(message(INFER))(s)]),
    "settings: window to and fro": Sample(
        lambda s: [*call(message(INFER))(s), settings((4, 0), (4, 2**31 - 1))]
    ),
    "settings: frame of 1": Sample(lambda s: [settings((5, 1))]),
    "settings: frame of 16 MiB": Sample(lambda s: [settings((5, 2**24 - 1)), *call(message(INFER))(s)]),
    "settings: no streams": Sample(lambda s: [settings((3, 0)), *call(message(INFER))(s)]),
    "settings: table of 4 GiB": Sample(lambda s: [settings((1, 2**32 - 1)), *call(message(INFER))(s)]),
    "settings: push 2": Sample(lambda s: [settings((2, 2))]),
    "settings: header list 0": Sample(lambda s: [settings((6, 0)), *call(message(INFER))(s)]),
    "settings: unknown": Sample(lambda s: [settings((0xABCD, 1), (0, 0))]),
    "settings flood": Sample(lambda s: [settings((3, 100))] * 1500, costly=True),
    "settings of 1,000 entries": Sample(lambda s: [settings(*[(3, 100)] * 1000)], costly=True),
    "ping of 7 bytes": Sample(lambda s: [f.ping(b"1234567")]),
    "ping on a stream": Sample(lambda s: [frame(f.PING, 0, s, b"12345678")]),
    "ping acknowledged unasked": Sample(lambda s: [frame(f.PING, f.ACK, 0, b"drained?")]),
    "ping flood": Sample(lambda s: [f.ping(b"12345678")] * 3000, costly=True),
    "reset of an idle stream": Sample(lambda s: [reset(s)]),
    "reset on stream 0": Sample(lambda s: [reset(0)]),
    "reset of 3 bytes": Sample(lambda s: [headers(s, head()), frame(f.RST_STREAM, 0, s, b"abc")]),
    "reset twice": Sample(lambda s: [*call(message(INFER))(s), reset(s), reset(s)]),
    "reset with an unknown code": Sample(lambda s: [*call(message(INFER))(s), reset(s, 2**32 - 1)]),
    "priority": Sample(lambda s: [frame(f.PRIORITY, 0, s, b"\0\0\0\1\x10"), *call(message(INFER))(s)]),
    "priority of 4 bytes": Sample(lambda s: [frame(f.PRIORITY, 0, s, b"\0\0\0\1")]),
    "priority on itself": Sample(lambda s: [frame(f.PRIORITY, 0, s, s.to_bytes(4, "big") + b"\1")]),
    "priority flood": Sample(lambda s: [frame(f.PRIORITY, 0, s, b"\0\0\0\1\x10")] * 2000, costly=True),
    "priority update": Sample(lambda s: [frame(0x10, 0, 0, s.to_bytes(4, "big") + b"u=9,i=junk")]),
    "empty data flood": Sample(
        lambda s: [headers(s, head()), data(s, message(INFER)[:20]), *[data(s, b"")] * 3000], costly=True
    ),
    "empty data flood in a stream": Sample(
        lambda s: [headers(s, head(b"ModelStreamInfer")), *[data(s, b"")] * 500], costly=True
    ),
    "window update of 0": Sample(lambda s: [window_update(0, 0)]),
    "window update of 0 on a stream": Sample(lambda s: [headers(s, head()), window_update(s, 0)]),
    "window update overflow": Sample(lambda s: [window_update(0, 2**31 - 1)] * 2),
    "window update overflow on a stream": Sample(
        lambda s: [headers(s, head()), *[window_update(s, 2**31 - 1)] * 2]
    ),
    "window update of an idle stream": Sample(lambda s: [window_update(s, 1)]),
    "window update of 3 bytes": Sample(lambda s: [frame(f.WINDOW_UPDATE, 0, 0, b"abc")]),
    "window overrun": Sample(lambda s: [headers(s, head()), *[data(s, bytes(16384))] * 20], costly=True),
    "goaway": Sample(lambda s: [*call(message(INFER))(s), frame(f.GOAWAY, 0, 0, bytes(8))]),
    "goaway with nothing open": Sample(lambda s: [frame(f.GOAWAY, 0, 0, bytes(8) + b"bye")]),
    "goaway on a stream": Sample(lambda s: [frame(f.GOAWAY, 0, s, bytes(8))]),
    "goaway of 4 bytes": Sample(lambda s: [frame(f.GOAWAY, 0, 0, bytes(4))]),
    "goaway twice, id growing": Sample(
        lambda s: [frame(f.GOAWAY, 0, 0, bytes(8)), frame(f.GOAWAY, 0, 0, b"\0\0\0\7" + bytes(4))]
    ),
    "push promise": Sample(
        lambda s: [frame(f.PUSH_PROMISE, f.END_HEADERS, s, b"\0\0\0\2" + f.hpack(head()))]
    ),
    "fault amid a call": Sample(lambda s: [*call(message(INFER))(s), data(0, b"x")]),
    "fault amid an upload": Sample(
        lambda s: [headers(s, head()), data(s, message(LARGE)[:9000]), data(s + 1000, b"x")]
    ),
    "fault amid a stream": Sample(
        lambda s: [*call(message(INFER) * 20, b"ModelStreamInfer", end=False)(s), data(0, b"x")]
    ),
    "rapid reset": Sample(
        lambda s: [part for at in range(0, 200, 2) for part in (headers(s + at, head()), reset(s + at))],
        costly=True,
    ),
    "1,100 calls never ended": Sample(
        lambda s: [headers(s + at, head()) for at in range(0, 2200, 2)], costly=True
    ),
}

_OPENINGS: Final[Mapping[str, Sequence[bytes]]] = {
    "nothing": [],
    "HTTP/1": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "HTTP/1 upgrade": [
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    ],
    "TLS": [bytes.fromhex("16030100c8010000c40303") + bytes(range(190))],
    "preface wrong": [f.PREFACE.replace(b"2.0", b"2.1"), settings()],
    "preface cut off": [f.PREFACE[:11]],
    "preface twice": [f.PREFACE, settings(), f.PREFACE],
    "preface without settings": [f.PREFACE, *call(message(INFER))(1)],
    "preface then a ping": [f.PREFACE, f.ping(b"12345678")],
    "frames without preface": [settings(), *call(message(INFER))(1)],
    "zeros": [bytes(400)],
    "ones": [b"\xff" * 400],
}


def _opening(written: Sequence[bytes]) -> Sample:
    return Sample(lambda _: list(written), opening=True)


CORPUS: Final[Mapping[str, Sample]] = {
    **_SOUND,
    **_MESSAGES,
    **_HEADERS,
    **_FRAMES,
    **{name: _opening(written) for name, written in _OPENINGS.items()},
}

WELL_FRAMED: Final = frozenset((*_SOUND, *_MESSAGES, *_HEADERS))
"""Those that a connection survives, but for a few with odd headers."""
