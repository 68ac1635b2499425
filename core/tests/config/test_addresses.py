from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from reactant_core.config import ConfigError, load_worker_config
from reactant_core.config.addresses import Address, HostPort, is_same_host, socket_path, split_host_port

ADDRESS: TypeAdapter[str] = TypeAdapter(Address)
HOST_PORT: TypeAdapter[str] = TypeAdapter(HostPort)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("a:1", "a", 1),
        ("gpu-a.example.org:65535", "gpu-a.example.org", 65535),
        ("10.0.0.1:8080", "10.0.0.1", 8080),
        ("[::1]:8080", "::1", 8080),
        ("[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80),
        ("worker_0:08080", "worker_0", 8080),
    ],
)
def test_host_and_port(address: str, host: str, port: int) -> None:
    assert split_host_port(address) == (host, port)
    assert ADDRESS.validate_python(address) == HOST_PORT.validate_python(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:-1",
        "a:8o",
        "a:٣",
        "a b:1",
        "::1:8080",
        "[:::]:1",
        "[a]:1",
        "http://a:1",
        "a:1/x",
        "-a:1",
        "a:1\n",
        "unix:",
        "unix:relative",
        "unix:a:1",
        "unix:/a,b",
        "unix:/" + "x" * 107,
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValidationError, match=r"accepted is|no commas"):
        ADDRESS.validate_python(address)


def test_unix_addresses() -> None:
    longest = "unix:/" + "x" * 106
    assert ADDRESS.validate_python(longest) == longest
    assert socket_path("unix:/run/w0.sock") == Path("/run/w0.sock")
    assert socket_path("unix.example.org:1") is None
    with pytest.raises(ValidationError):
        HOST_PORT.validate_python("unix:/run/w0.sock")


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("unix:/run/w0.sock", True),
        ("localhost:1", True),
        ("LocalHost:1", True),
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("10.0.0.1:1", False),
        ("[fe80::1]:1", False),
        ("localhost.example.org:1", False),
        ("gpu-a:1", False),
    ],
)
def test_what_is_on_this_machine(address: str, *, same: bool) -> None:
    assert is_same_host(address) is same


def test_the_socket_of_a_worker() -> None:
    variable = "INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET"
    assert load_worker_config({}).value.endpoints.unix_socket is None
    assert load_worker_config({variable: "/run/w.sock"}).value.endpoints.unix_socket == Path("/run/w.sock")
    for wrong, accepted in (("run/w.sock", "an absolute path"), ("/" + "x" * 107, "107 bytes at most")):
        with pytest.raises(ConfigError, match=accepted):
            load_worker_config({variable: wrong})
