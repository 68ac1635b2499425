"""A server that ends by itself is noticed."""

from __future__ import annotations

import asyncio

import pytest

from reactant_core.rpc import create_server
from reactant_core.testing import eventually

# HTTP/2 preface, empty SETTINGS, and HEADERS (END_STREAM, END_HEADERS) of a request on stream 1 whose `:path`
# is `/a\xe6/b`: POST and http from the static table, the rest as literals without indexing (RFC 7541).
_PATH = b"/a\xe6/b"
_BLOCK = (
    b"\x83\x86"
    + b"\x04"
    + bytes([len(_PATH)])
    + _PATH
    + b"\x01\x01a"
    + b"\x0f\x10\x10application/grpc"
    + b"\x00\x02te\x08trailers"
)
_REQUEST = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    + len(_BLOCK).to_bytes(3, "big")
    + b"\x01\x05\x00\x00\x00\x01"
    + _BLOCK
)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_grpcio_s_end_on_a_path_that_is_not_utf_8_is_noticed() -> None:
    async def scenario() -> str:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        server = create_server(transport="grpcio")
        port = server.bind("127.0.0.1", 0)
        await server.start()
        died = asyncio.create_task(server.wait_died())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_REQUEST)
        await eventually(died.done, 10, what="the server's end is noticed")
        writer.close()
        await writer.wait_closed()
        return died.result()

    assert "UnicodeDecodeError" in asyncio.run(scenario())


def test_a_stop_is_no_death() -> None:
    async def scenario() -> bool:
        server = create_server(transport="grpcio")
        server.bind("127.0.0.1", 0)
        await server.start()
        died = asyncio.create_task(server.wait_died())
        await server.stop(0)
        await asyncio.sleep(0)
        found = died.done()
        died.cancel()
        return found

    assert asyncio.run(scenario()) is False
