"""TLS listeners and channels, with certificates made on the spot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.rpc import ClientTls, ServerTls, create_channel, create_server, create_sync_channel
from reactant_core.testing import async_test

Serving = Callable[..., Any]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca, server and client certificates and keys, PEM."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("keys")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
    for name in ("server", "client"):
        run("req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="ascii")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


@async_test
async def test_auto_takes_grpcio_under_tls(keys: Path, serving: Serving) -> None:
    tls = ServerTls(keys / "server.pem", keys / "server.key")
    client = partial(create_channel, tls=ClientTls(ca_file=keys / "ca.pem"))
    async with serving("auto", tls=tls, client=client) as served:
        assert served.server.transport == "grpcio"
        assert "TLS" in served.server.reason
        assert await served.unary("Say")(b"secret") == b"secret"
        async with create_channel(f"127.0.0.1:{served.port}") as plain:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await plain.unary_unary("/test.Echo/Say", bytes, bytes)(b"x", timeout=5)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@async_test
async def test_mutual_tls_refuses_a_client_without_certificate(keys: Path, serving: Serving) -> None:
    tls = ServerTls(keys / "server.pem", keys / "server.key", client_ca_file=keys / "ca.pem")
    known = ClientTls(keys / "ca.pem", keys / "client.pem", keys / "client.key", server_name="localhost")
    async with serving("grpcio", tls=tls, client=partial(create_channel, tls=known)) as served:
        assert await served.unary("Say")(b"x") == b"x"
        unknown = create_channel(f"127.0.0.1:{served.port}", tls=ClientTls(keys / "ca.pem"))
        async with unknown:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await unknown.unary_unary("/test.Echo/Say", bytes, bytes)(b"x", timeout=5)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@async_test
async def test_native_has_no_tls(keys: Path) -> None:
    with pytest.raises(ValueError, match="native is not possible: it has no TLS"):
        create_server(transport="native", tls=ServerTls(keys / "server.pem", keys / "server.key"))


@async_test
async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    server = create_server(tls=ServerTls(tmp_path / "no.pem", tmp_path / "no.key"))
    with pytest.raises(OSError, match=r"no\.(pem|key)"):
        server.bind("127.0.0.1", 0)
    await server.stop(0)
    with pytest.raises(OSError, match=r"no\.pem"):
        create_sync_channel("127.0.0.1:1", tls=ClientTls(tmp_path / "no.pem"))
