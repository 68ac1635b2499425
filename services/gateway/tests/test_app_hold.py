"""A drained gateway stays for its workers when it is asked to, and only then."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import pytest

from reactant_core.config.gateway import HOLD_FD_VARIABLE, GatewayConfig, load_gateway_config
from reactant_core.lifecycle import Stop
from reactant_core.testing import async_test, eventually_sync, free_port
from reactant_gateway import app
from reactant_gateway.sockets import Listening, asked_to_stay, hold_fd


@final
class Pipe:
    """The supervisor's end, and the descriptor that a gateway gets."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        self._open = True

    def ask(self) -> None:
        """The gateway should stay."""
        os.write(self._end, b".")

    def let_go(self) -> None:
        """It may end."""
        if self._open:
            self._open = False
            os.close(self._end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.let_go()
    os.close(made.fd)


def test_only_a_byte_asks(pipe: Pipe) -> None:
    fd = hold_fd({HOLD_FD_VARIABLE: str(pipe.fd)})
    assert fd == pipe.fd
    assert not asked_to_stay(fd)
    pipe.ask()
    assert asked_to_stay(fd)
    pipe.let_go()
    assert not asked_to_stay(fd)


class Gateway:
    """Stands in for the real one: serves until the stop, drains at once, notes its end."""

    fails = False
    made: list[Gateway]

    def __init__(self, config: GatewayConfig, listening: Listening, *, embedded: bool = False) -> None:
        self._listening = listening
        self.did: list[str] = []
        self.made.append(self)

    def follow(self, config: GatewayConfig) -> None:
        """Nothing to take over."""

    def refusals(self, config: GatewayConfig) -> list[str]:
        """Nothing is refused."""
        return []

    async def start(self, stop: Stop) -> None:
        self.did.append("start")

    async def serve(self, stop: Stop) -> None:
        if self.fails:
            raise RuntimeError("its own server ended")
        await stop.requested.wait()

    async def drain(self) -> None:
        self.did.append("drain")

    async def stop(self) -> None:
        self.did.append("stop")
        self._listening.grpc.close()
        self._listening.http.close()


Serve = Callable[[Stop], Any]


@pytest.fixture
def serve(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """`app.serve` of a stand-in with the pipe."""
    monkeypatch.setenv(HOLD_FD_VARIABLE, str(pipe.fd))
    monkeypatch.setattr(app, "Gateway", Gateway)
    monkeypatch.setattr(Gateway, "made", [], raising=False)
    effective = load_gateway_config(environ())
    yield lambda stop: app.serve(effective, stop)
    gc.unfreeze()


def environ() -> dict[str, str]:
    """Of a gateway whose one worker is not there."""
    return {
        "REACTANT_GATEWAY_WORKERS": f"127.0.0.1:{free_port()}",
        "REACTANT_GATEWAY_LISTEN_HOST": "127.0.0.1",
        "REACTANT_GATEWAY_LISTEN_PORT": str(free_port()),
        "REACTANT_GATEWAY_LISTEN_METRICS_PORT": str(free_port()),
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0",
    }


def test_one_that_failed_leaves_although_it_was_asked_to_stay(
    serve: Serve, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "_HELD_SECONDS", 0.01)
    monkeypatch.setattr(Gateway, "fails", True)

    @async_test
    async def scenario() -> None:
        pipe.ask()
        assert await serve(Stop()) == 1
        assert Gateway.made[0].did == ["start", "drain", "stop"]
        assert "nobody ended the hold" not in caplog.text

    scenario()


def test_one_that_nobody_lets_go_leaves_in_the_end(
    serve: Serve, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "_HELD_SECONDS", 0.01)

    @async_test
    async def scenario() -> None:
        stop = Stop()
        stop.request("test")
        pipe.ask()
        assert await serve(stop) == 0
        assert "nobody ended the hold" in caplog.text
        assert Gateway.made[0].did[-1] == "stop"

    scenario()


@final
class Process:
    """A real gateway that has the pipe."""

    def __init__(self, pipe: Pipe, log: Path) -> None:
        settings = environ()
        self._port = settings["REACTANT_GATEWAY_LISTEN_METRICS_PORT"]
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reactant_gateway"],
                env={**os.environ, **settings, HOLD_FD_VARIABLE: str(pipe.fd)},
                stdout=file,
                stderr=file,
                pass_fds=(pipe.fd,),
            )

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text()

    def state(self) -> str:
        """Out of its `/readyz`; empty when nothing answers."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5)
        except urllib.error.HTTPError as error:
            with error:
                state: str = json.loads(error.read())["state"]
                return state
        except OSError:
            return ""
        raise AssertionError("ready without a worker")


@pytest.fixture
def gateway(pipe: Pipe, tmp_path: Path) -> Iterator[Process]:
    made = Process(pipe, tmp_path / "log")
    eventually_sync(lambda: made.state() == "waiting for a worker", 60, what="it serves")
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.slow
def test_a_sigterm_from_anybody_ends_it_after_the_drain(gateway: Process) -> None:
    gateway.process.send_signal(signal.SIGTERM)
    # Half of what a hold lasts at most.
    assert gateway.process.wait(15) == 0, gateway.log
    assert "drained" in gateway.log


@pytest.mark.slow
def test_one_that_is_asked_stays_after_the_drain_until_it_is_let_go(gateway: Process, pipe: Pipe) -> None:
    pipe.ask()
    gateway.process.send_signal(signal.SIGTERM)
    eventually_sync(lambda: "drained" in gateway.log, 15, what="it has drained")
    with pytest.raises(subprocess.TimeoutExpired):
        gateway.process.wait(1)
    assert gateway.state() == "drained"
    pipe.let_go()
    assert gateway.process.wait(15) == 0, gateway.log
    assert "nobody ended the hold" not in gateway.log
