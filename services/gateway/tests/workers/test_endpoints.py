from __future__ import annotations

import socket
from pathlib import Path

import pytest

from reactant_core.config.gateway import GatewayConfig
from reactant_core.testing import async_test, free_port
from reactant_gateway.workers.dial import dial
from reactant_gateway.workers.endpoints import Endpoint, endpoints_of


def test_endpoints_of_a_configuration() -> None:
    config = GatewayConfig(
        endpoints=("127.0.0.1:8080", "unix:/run/w1.sock", "gpu7:8080"),
        metrics_endpoints=("127.0.0.1:9100", "127.0.0.1:9101", "gpu7:9100"),
    )
    assert endpoints_of(config) == (
        Endpoint("worker0", "127.0.0.1:8080", "127.0.0.1:9100", True),
        Endpoint("worker1", "unix:/run/w1.sock", "127.0.0.1:9101", True),
        Endpoint("worker2", "gpu7:8080", "gpu7:9100", False),
    )
    bare = endpoints_of(GatewayConfig(endpoints=("gpu7:8080",), worker_names=("left",)))
    assert bare == (Endpoint("left", "gpu7:8080", None, False),)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@async_test
async def test_dial_finds_a_listener_and_names_a_refusal(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        await dial(f"{host}:{server.getsockname()[1]}")
    with pytest.raises(ConnectionRefusedError):
        await dial(f"{host}:{free_port()}")


@async_test
async def test_dial_of_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with pytest.raises(ConnectionRefusedError):
        await dial(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        await dial(f"unix:{path}")
    with pytest.raises(ConnectionRefusedError):
        await dial(f"unix:{path}")
