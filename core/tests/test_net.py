from __future__ import annotations

import socket
import sys

import pytest

from reactant_core.net import (
    BindError,
    bind_failure,
    check_free,
    format_address,
    listening_socket,
    unacknowledged_bytes,
)


def test_addresses() -> None:
    assert format_address("0.0.0.0", 8001) == "0.0.0.0:8001"
    assert format_address("::1", 8001) == "[::1]:8001"
    assert format_address("[::1]", 8001) == "[::1]:8001"


def test_a_listening_socket_excludes_a_second_one() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            with pytest.raises(BindError, match=f"cannot listen on {host}:{port}: address already in use"):
                check_free(host, port)
        with pytest.raises(BindError, match="already in use"):
            listening_socket("127.0.0.1", port)
    listening_socket("127.0.0.1", port).close()
    check_free("localhost", port)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6() -> None:
    try:
        sock = listening_socket("::1", 0)
    except BindError:
        pytest.skip("no IPv6 loopback")
    with sock:
        port = sock.getsockname()[1]
        with pytest.raises(BindError, match=rf"\[::1\]:{port}: address already in use"):
            listening_socket("[::1]", port)


def test_names_that_do_not_resolve() -> None:
    with pytest.raises(BindError, match=r"cannot listen on no-such-host\.invalid:1: "):
        listening_socket("no-such-host.invalid", 1)


def test_the_cause_of_anothers_failure() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert "already in use" in str(bind_failure("127.0.0.1", port, RuntimeError("failed")))
    assert (
        str(bind_failure("127.0.0.1", port, RuntimeError("odd"))) == f"cannot listen on 127.0.0.1:{port}: odd"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's tables")
def test_bytes_a_peer_has_not_taken_are_counted() -> None:
    with listening_socket("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.setblocking(True)
            connection, _ = server.accept()
            with connection:
                assert unacknowledged_bytes(port) == 0
                connection.setblocking(False)
                try:
                    while True:
                        connection.send(bytes(1 << 20))
                except BlockingIOError:
                    pass
                assert (unacknowledged_bytes(port) or 0) > 0
                client.close()
