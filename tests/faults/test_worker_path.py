"""A worker whose grpcio server ends by itself ends too, so that its supervisor starts another."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.support.process import HOST, worker_process

# HTTP/2 preface, SETTINGS, HEADERS of a POST whose `:path` is `/a\xe6/b`: grpcio 1.85 cannot decode it.
_BLOCK = b"\x83\x86\x04\x05/a\xe6/b\x01\x01a\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
_REQUEST = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    + len(_BLOCK).to_bytes(3, "big")
    + b"\x01\x05\x00\x00\x00\x01"
    + _BLOCK
)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpcio", "native"])
def test_a_path_that_is_not_utf_8(transport: str, fixtures: Path, cache: Path, tmp_path: Path) -> None:
    worker = worker_process(
        [fixtures],
        log=tmp_path / "worker.log",
        cache=cache,
        include=["echo"],
        environ={"INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport},
    )
    with worker:
        worker.wait_ready()
        with socket.create_connection((HOST, worker.port)) as connection:
            connection.sendall(_REQUEST)
            if transport == "native":
                assert connection.recv(1)
                assert worker.running
                return
            assert worker.wait(5) == 1
    assert any("nobody can call" in str(event.get("event")) for event in worker.events())
