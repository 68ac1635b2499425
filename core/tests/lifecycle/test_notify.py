from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reactant_core.notify import Notifier


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """A notify socket bound at `address`, as NOTIFY_SOCKET names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address[1:] if address.startswith("@") else address)
        sock.settimeout(10)
        yield sock


@pytest.mark.parametrize("abstract", [False, True])
def test_states_arrive_as_datagrams(tmp_path: Path, abstract: bool) -> None:
    address = f"@reactant-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager(address) as sock:
        notifier = Notifier({"NOTIFY_SOCKET": address})
        notifier.ready()
        notifier.status("compiling,\n 1/2 programs")
        notifier.watchdog()
        notifier.stopping()
        assert [sock.recv(100) for _ in range(4)] == [
            b"READY=1",
            b"STATUS=compiling, 1/2 programs",
            b"WATCHDOG=1",
            b"STOPPING=1",
        ]


@pytest.mark.parametrize("value", [None, "", "/nonexistent/socket", "@nobody", "@" + "x" * 200, "a\0b"])
def test_nobody_to_tell_is_no_error(value: str | None, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({} if value is None else {"NOTIFY_SOCKET": value})
    for _ in range(3):
        notifier.ready()
    assert len(caplog.records) == (1 if value else 0)


def test_a_manager_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address):
        notifier = Notifier({"NOTIFY_SOCKET": address})
        for _ in range(5000):
            notifier.watchdog()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_the_process_it_names(environ: dict[str, str], expected: float | None) -> None:
    assert Notifier({"NOTIFY_SOCKET": "@x", **environ}).watchdog_seconds == expected
    assert Notifier(environ).watchdog_seconds is None
