"""Processes of a measurement: their cores, their CPU time, their metrics page, start and stop."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_STOP_SECONDS = 60
_LOG_CHARACTERS = 2000
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, of all its threads, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def metric(http_port: int, name: str, **labels: str) -> float:
    """Sum of the samples of `name` that carry `labels`; 0 without any."""
    total = 0.0
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics") as page:
        for line in page.read().decode().splitlines():
            match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if match and all(f'{k}="{v}"' in (match[1] or "") for k, v in labels.items()):
                total += float(match[2])
    return total


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started inside runs on these cores only, for its whole life."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def started(
    name: str,
    command: Sequence[str],
    *,
    ready: Callable[[], bool],
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a process once `ready`, then ends it with SIGTERM.

    What it prints goes to `log`, whose end is a note of the error; to the terminal without one.

    Raises:
        RuntimeError: it ended by itself, was not ready in time, or did not exit with 0.
    """
    with contextlib.ExitStack() as stack:
        output = None if log is None else stack.enter_context(log.open("wb"))
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)
    try:
        _wait(name, process, ready, timeout_seconds)
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended by itself with {process.returncode}")
        if code := _stop(process):
            raise RuntimeError(f"{name} exited with {code}")
    except Exception as error:
        if process.poll() is not None:
            error.add_note(f"{name} has ended with {process.returncode}")
        if log is not None:
            error.add_note(log.read_text(errors="replace")[-_LOG_CHARACTERS:])
        raise
    finally:
        # Killed at once, a process with children of its own would leave them behind.
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def answers_200(url: str) -> bool:
    """Whether a GET of `url` gives 200 now."""
    try:
        with urllib.request.urlopen(url):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def listens(port: int) -> bool:
    """Whether somebody listens on a port of this machine now."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(
    name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool], timeout_seconds: float
) -> None:
    limit = time.monotonic() + timeout_seconds
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise RuntimeError(f"{name} exited with {process.returncode} before it was ready")
        if ready():
            return
        time.sleep(0.05)
    raise RuntimeError(f"{name} was not ready within {timeout_seconds} s")
