"""Servers on a Unix socket, alone and beside a port, on both transports."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from reactant_core.net import BindError
from reactant_core.rpc import create_channel, create_server
from reactant_core.testing import async_test
from reactant_core.unix_socket import LONGEST_PATH_BYTES

Serving = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.sock"


def leave_stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()


def leave_file(path: Path) -> None:
    path.touch(mode=0o600)


def mode(path: Path) -> str:
    """Kind and permissions as `ls -l` shows them."""
    return stat.filemode(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def say(path: Path, message: bytes) -> bytes:
    async with create_channel(f"unix:{quote(str(path))}") as channel:
        answer: bytes = await channel.unary_unary("/test.Echo/Say", bytes, bytes)(message, timeout=5)
        return answer


@async_test
async def test_beside_a_port_both_give_the_same_services(
    transport: Any, serving: Serving, path: Path
) -> None:
    async with serving(transport, unix=path) as served:
        assert await served.unary("Say")(b"over TCP") == b"over TCP"
        assert await say(path, b"over the socket") == b"over the socket"
        async with create_channel(f"unix:{path}") as channel:
            chat = channel.stream_stream("/test.Echo/Chat", bytes, bytes)()
            await chat.write(b"a")
            assert await chat.read() == b"a"
            chat.cancel()
        assert mode(path) == "srw-rw----"
    assert not names(path.parent)


@pytest.mark.parametrize("name", ["a b", "50%41", "é", "#?"])
@async_test
async def test_alone_under_a_name_that_needs_care(
    transport: Any, serving: Serving, tmp_path: Path, name: str
) -> None:
    async with serving(transport, unix=tmp_path / name, port=False):
        assert names(tmp_path) == [name]
        assert await say(tmp_path / name, b"x") == b"x"
    assert not names(tmp_path)


@async_test
async def test_a_socket_nobody_listens_on_is_replaced(transport: Any, serving: Serving, path: Path) -> None:
    leave_stale_socket(path)
    async with serving(transport, unix=path):
        assert await say(path, b"x") == b"x"


@async_test
async def test_a_socket_in_use_is_left_alone(transport: Any, serving: Serving, path: Path) -> None:
    async with serving(transport, unix=path):
        second = create_server(transport=transport)
        with pytest.raises(BindError, match=rf"cannot listen on unix:{path}: address already in use"):
            second.bind_unix(path)
        await second.stop(0)
        assert await say(path, b"x") == b"x"


@async_test
async def test_a_listener_that_does_not_accept_is_in_use(transport: Any, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock, socket.socket(socket.AF_UNIX) as waiting:
        sock.bind(str(path))
        sock.listen(0)
        waiting.connect(str(path))
        server = create_server(transport=transport)
        with pytest.raises(BindError, match="address already in use"):
            server.bind_unix(path)
        await server.stop(0)


@async_test
async def test_what_is_no_socket_stays(transport: Any, path: Path) -> None:
    leave_file(path)
    server = create_server(transport=transport)
    with pytest.raises(BindError, match=rf"unix:{path}: there is something that is no socket"):
        server.bind_unix(path)
    await server.stop(0)
    assert mode(path) == "-rw-------"


@async_test
async def test_no_such_folder(transport: Any, tmp_path: Path) -> None:
    server = create_server(transport=transport)
    with pytest.raises(BindError, match=r"none/s\.sock: no such file or directory"):
        server.bind_unix(tmp_path / "none" / "s.sock")
    await server.stop(0)


@async_test
async def test_a_path_has_107_bytes_at_most(
    transport: Any, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    longest = Path("é" * 53 + "x")
    assert len(str(longest).encode()) == LONGEST_PATH_BYTES
    async with serving(transport, unix=longest):
        assert await say(longest, b"x") == b"x"
    server = create_server(transport=transport)
    with pytest.raises(BindError, match=r"the path has 108 bytes, a Unix socket takes 107 at most"):
        server.bind_unix(Path(f"{longest}y"))
    await server.stop(0)


@async_test
async def test_a_server_never_started_leaves_nothing(transport: Any, path: Path) -> None:
    server = create_server(transport=transport)
    server.bind_unix(path)
    await server.stop(1)
    assert not names(path.parent)


@pytest.mark.slow
@async_test
async def test_a_large_answer_on_its_way_arrives(transport: Any, serving: Serving, path: Path) -> None:
    size = 150_000_000
    async with serving(transport, unix=path, port=False) as served, create_channel(f"unix:{path}") as channel:
        call = asyncio.ensure_future(
            awaited(channel.unary_unary("/test.Echo/Make", bytes, bytes)(str(size).encode()))
        )
        await served.echo.made.wait()
        await served.server.stop(60)
        assert len(await call) == size


async def awaited(call: Any) -> bytes:
    answer: bytes = await call
    return answer


@async_test
async def test_a_stop_lets_calls_on_the_socket_finish(transport: Any, serving: Serving, path: Path) -> None:
    async with serving(transport, unix=path) as served, create_channel(f"unix:{path}") as channel:
        call = asyncio.ensure_future(awaited(channel.unary_unary("/test.Echo/Wait", bytes, bytes)(b"a")))
        await served.echo.started.wait()
        stopping = asyncio.create_task(served.server.stop(30))
        await asyncio.sleep(0)
        served.echo.released.set()
        assert await call == b"a"
        await stopping
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await say(path, b"x")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
