"""Ports before a start, readiness during it, and what people read of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from reactant_core.progress import Progress
from reactant_core.testing import async_test, free_port
from reactant_supervisor.announce import ModelEntry, announce_ready
from reactant_supervisor.model_index import list_models
from reactant_supervisor.preflight import Listener, port_faults
from reactant_supervisor.readiness import ask

COMPILING = (
    b'{"ready": false, "state": "compiling", "models": {"total": 2, "ready": 1, "failed": 1}, '
    b'"programs": {"done": 3, "total": 8}, "seconds_left": 4.6}'
)


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = Listener("HTTP", "127.0.0.1", free_port(), "REACTANT_PUBLIC_METRICS_PORT")
        (fault,) = port_faults([Listener("gRPC", "127.0.0.1", port, "REACTANT_PUBLIC_PORT"), free])
    assert f"gRPC: cannot listen on 127.0.0.1:{port}: address already in use" in fault
    assert f"sport = :{port}" in fault
    assert "set REACTANT_PUBLIC_PORT to another port" in fault


def test_ports_just_left_by_a_connection_are_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # this side closes first: TIME_WAIT stays at the port
    assert port_faults([Listener("gRPC", "127.0.0.1", port, "X")]) == []


def test_an_address_that_is_not_ours() -> None:
    (fault,) = port_faults([Listener("gRPC", "203.0.113.7", 8001, "X")])
    assert "203.0.113.7:8001" in fault


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """An HTTP server that gives every request `answer`; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            b"HTTP/1.1 503 Service Unavailable\r\n\r\n" + COMPILING,
            Progress(False, "compiling", {"total": 2, "ready": 1, "failed": 1}, {"done": 3, "total": 8}, 4.6),
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", Progress(True)),
        (b"HTTP/1.1 200 OK\r\n\r\nok", Progress(True)),
        (b"HTTP/1.1 503 x\r\n\r\n[1]", Progress(False)),
        (b'HTTP/1.1 503 x\r\n\r\n{"models": 3, "seconds_left": "soon"}', Progress(False)),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"HTTP/1.1 abc\r\n\r\n", None),
        (b"", None),
    ],
)
def test_readiness_is_read_from_the_answer(answer: bytes, expected: Progress | None) -> None:
    @async_test
    async def scenario() -> None:
        async with answering(answer) as port:
            assert await ask("127.0.0.1", port) == expected

    scenario()


@async_test
async def test_nothing_answers_yet() -> None:
    assert await ask("127.0.0.1", free_port()) is None


@async_test
async def test_a_server_that_gives_no_index_is_no_failure() -> None:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert await list_models(f"127.0.0.1:{port}", timeout_seconds=0.05) is None


def said(
    caplog: pytest.LogCaptureFixture, answers: Iterable[Progress | None], models: list[ModelEntry] | None
) -> list[str]:
    """The lines of a start whose readiness goes through `answers`."""
    script = iter(answers)

    async def ask_next() -> Progress | None:
        return next(script)

    async def index() -> list[ModelEntry] | None:
        return models

    _announce(ask_next, index)
    return [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)]


def _announce(
    ask_next: Callable[[], Awaitable[Progress | None]],
    index: Callable[[], Awaitable[list[ModelEntry] | None]],
) -> None:
    @async_test
    async def scenario() -> None:
        await announce_ready("worker0", "gRPC host:1", ask_next, index, every_seconds=0, line_every_seconds=0)

    scenario()


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def test_each_step_is_said_once_then_the_ready_line(caplog: pytest.LogCaptureFixture) -> None:
    step = Progress(False, "compiling", {"total": 2, "ready": 0}, {"done": 1, "total": 4}, 3.2)
    same_but_later = Progress(False, "compiling", {"total": 2, "ready": 0}, {"done": 1, "total": 4}, 2.9)
    models = [
        ModelEntry("broken", "UNAVAILABLE"),
        ModelEntry("digits", "READY"),
        ModelEntry("minilm", "READY"),
    ]
    lines = said(caplog, [None, Progress(False, "starting"), step, same_but_later, Progress(True)], models)
    assert lines == [
        "worker0: starting",
        "worker0: compiling, 1/4 programs, 0/2 models ready, about 3 s left",
        "ready: gRPC host:1  models: digits, minilm; not served: broken",
    ]


def test_many_models_are_cut_and_none_is_said(caplog: pytest.LogCaptureFixture) -> None:
    many = [ModelEntry(f"m{n}", "READY") for n in range(11)]
    assert said(caplog, [Progress(True)], many)[-1].endswith("m6, m7 and 3 more")
    down = [ModelEntry(f"m{n}", "UNAVAILABLE") for n in range(9)]
    assert said(caplog, [Progress(True)], down)[-1].endswith(
        "models: none; not served: m0, m1, m2, m3, m4, m5, m6, m7 and 1 more"
    )
    assert said(caplog, [Progress(True)], [])[-1] == "ready: gRPC host:1  models: none"
    assert said(caplog, [Progress(True)], None)[-1] == "ready: gRPC host:1"
