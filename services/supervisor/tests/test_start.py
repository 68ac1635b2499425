"""Ports before a start, readiness during it, and what people read of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reactant_core.notify import Notifier
from reactant_core.progress import Progress
from reactant_core.testing import async_test, eventually, free_port
from reactant_supervisor.announce import Announcer, ModelEntry
from reactant_supervisor.listeners import Listener
from reactant_supervisor.model_index import list_models
from reactant_supervisor.preflight import port_faults
from reactant_supervisor.readiness import ask, wait_drained

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


@async_test
async def test_a_drained_gateway_says_so_in_its_readiness() -> None:
    async with answering(b'HTTP/1.1 503 x\r\n\r\n{"ready": false, "state": "draining"}') as port:
        waiting = asyncio.create_task(wait_drained("127.0.0.1", port, every_seconds=0))
        await ask("127.0.0.1", port)
        await ask("127.0.0.1", port)
        assert not waiting.done()
        waiting.cancel()
    async with answering(b'HTTP/1.1 503 x\r\n\r\n{"ready": false, "state": "drained"}') as port:
        await asyncio.wait_for(wait_drained("127.0.0.1", port), 20)


class Systemd:
    """What systemd was told, in order."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.setblocking(False)
        self.notifier = Notifier({"NOTIFY_SOCKET": str(folder / "notify")})

    def told(self) -> list[str]:
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(self._socket.recv(1000).decode())
        return lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.msg["event"] for record in caplog.records if isinstance(record.msg, dict)]


class Children:
    """Children whose readiness the test sets."""

    def __init__(
        self,
        *names: str,
        front: str | None,
        notifier: Notifier | None = None,
        models: list[ModelEntry] | None = None,
    ) -> None:
        self.answers: dict[str, Progress | None] = dict.fromkeys(names)
        self.asked: dict[str, int] = dict.fromkeys(names, 0)

        def asking(name: str) -> Callable[[], Awaitable[Progress | None]]:
            async def ask_one() -> Progress | None:
                self.asked[name] += 1
                await asyncio.sleep(0)
                return self.answers[name]

            return ask_one

        async def index() -> list[ModelEntry] | None:
            return models

        self.announcer = Announcer(
            {name: asking(name) for name in names},
            front=front,
            address="gRPC host:1",
            list_models=index,
            notifier=notifier or Notifier({}),
            every_seconds=0,
            line_every_seconds=0,
        )

    @asynccontextmanager
    async def alive(self, name: str) -> AsyncIterator[None]:
        """One life of a child."""
        following = asyncio.create_task(self.announcer.follow(name))
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def become(self, name: str, progress: Progress | None) -> None:
        """Sets how far a child is and waits until that has been noticed."""
        self.answers[name] = progress
        ready = progress is not None and progress.ready
        asked = self.asked[name]
        await eventually(
            lambda: self.announcer.progress.get(name) == "ready" if ready else self.asked[name] > asked + 2
        )


COMPILING_ONE = Progress(False, "compiling", {"total": 2, "ready": 0}, {"done": 1, "total": 4}, 3.2)
READY = Progress(True)


@async_test
async def test_each_step_of_a_lone_worker_is_said_once_then_the_ready_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = [
        ModelEntry("broken", "UNAVAILABLE"),
        ModelEntry("digits", "READY"),
        ModelEntry("minilm", "READY"),
    ]
    children = Children("worker0", front="worker0", models=models)
    async with children.alive("worker0"):
        for progress in (
            Progress(False, "starting"),
            COMPILING_ONE,
            replace(COMPILING_ONE, seconds_left=2.9),
        ):
            await children.become("worker0", progress)
        await children.become("worker0", READY)
        await eventually(lambda: "ready: " in caplog.text)
    assert lines_of(caplog) == [
        "worker0: starting",
        "worker0: compiling, 1/4 programs, 0/2 models ready, about 3 s left",
        "ready: gRPC host:1  models: digits, minilm; not served: broken",
    ]


@pytest.mark.parametrize(
    ("models", "end"),
    [
        ([ModelEntry(f"m{n}", "READY") for n in range(11)], "m6, m7 and 3 more"),
        (
            [ModelEntry(f"m{n}", "UNAVAILABLE") for n in range(9)],
            "models: none; not served: m0, m1, m2, m3, m4, m5, m6, m7 and 1 more",
        ),
        ([], "ready: gRPC host:1  models: none"),
        (None, "ready: gRPC host:1"),
    ],
)
def test_many_models_are_cut_and_none_is_said(
    models: list[ModelEntry] | None, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    @async_test
    async def scenario() -> None:
        children = Children("worker0", front="worker0", models=models)
        async with children.alive("worker0"):
            await children.become("worker0", READY)
            await eventually(lambda: "ready: " in caplog.text)

    scenario()
    assert lines_of(caplog)[-1].endswith(end)


@async_test
async def test_a_node_is_ready_once_when_its_gateway_is(
    caplog: pytest.LogCaptureFixture, systemd: Systemd
) -> None:
    names = ("worker0", "worker1", "gateway")
    children = Children(*names, front="gateway", notifier=systemd.notifier, models=[ModelEntry("m", "READY")])
    async with children.alive("worker0"), children.alive("worker1"):
        async with children.alive("gateway"):
            await children.become("gateway", Progress(False, "waiting"))
            await children.become("worker1", COMPILING_ONE)
            await children.become("worker0", READY)
            assert "READY=1" not in systemd.told()
            assert not await children.announcer.node_ready()
            await children.become("gateway", READY)
            await eventually(lambda: "ready: " in caplog.text)
            assert await children.announcer.node_ready()
            told = systemd.told()
            assert told.count("READY=1") == 1
            assert told[told.index("READY=1") - 1] == (
                "STATUS=gateway: ready; worker1: compiling, 1/4 programs, 0/2 models ready; worker0: ready"
            )
            await children.become("worker1", READY)
        # The gateway dies and comes again.
        async with children.alive("gateway"):
            await eventually(lambda: caplog.text.count("ready: gRPC") == 2)
    assert "READY=1" not in systemd.told()
    assert lines_of(caplog) == [
        "worker1: compiling, 1/4 programs, 0/2 models ready, about 3 s left",
        "worker0: ready",
        "ready: gRPC host:1  workers: 1 of 2  models: m",
        "worker1: ready",
        "ready: gRPC host:1  workers: 2  models: m",
    ]


@async_test
async def test_workers_without_a_gateway_are_ready_together(
    caplog: pytest.LogCaptureFixture, systemd: Systemd
) -> None:
    children = Children("worker0", "worker1", front=None, notifier=systemd.notifier)
    async with children.alive("worker0"), children.alive("worker1"):
        await children.become("worker1", READY)
        assert "READY=1" not in systemd.told()
        await children.become("worker0", READY)
        await eventually(lambda: "ready: gRPC host:1" in caplog.text)
        assert systemd.told()[-1] == "READY=1"
    assert systemd.told()[-1] == "STATUS=worker1: down; worker0: down"
