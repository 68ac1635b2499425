"""Real processes and real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from reactant_core.lifecycle import Stop, die_with_parent, run
from reactant_core.testing import async_test, eventually_sync

pytestmark = pytest.mark.slow

HEAD = """
import asyncio, os, signal, sys, time
from reactant_core.lifecycle import Stop, die_with_parent, run
from reactant_core.logs import configure_logs
configure_logs("info")
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
"""

GRACEFUL = """
async def main(stop):
    say("ready " + type(asyncio.get_running_loop()).__module__)
    await stop.requested.wait()
    say(f"stopping {stop.reason}")
    return 7
sys.exit(run(main))
"""

STUBBORN = """
async def main(stop):
    say("ready")
    await stop.requested.wait()
    say("stopping")
    {busy}
    return 0
sys.exit(run(main))
"""


@contextmanager
def program(text: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A Python process running `text`, killed in the end, and its standard output."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.communicate(timeout=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_result_is_the_exit_code(number: signal.Signals) -> None:
    with program(GRACEFUL) as (process, output):
        assert output.readline() == "ready uvloop\n"
        process.send_signal(number)
        assert output.readline() == f"stopping {number.name}\n"
        assert process.wait(10) == 7


@pytest.mark.parametrize("busy", ["await asyncio.sleep(600)", "time.sleep(600)", "while True: pass"])
@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_the_second_signal_ends_it_at_once_even_when_the_loop_hangs(
    busy: str, first: str, second: str
) -> None:
    with program(STUBBORN.format(busy=busy)) as (process, output):
        assert output.readline() == "ready\n"
        process.send_signal(signal.Signals[first])
        assert output.readline() == "stopping\n"
        begun = time.monotonic()
        eventually_sync(lambda: ended_by(process, signal.Signals[second]), 5)
        assert process.wait(10) == 128 + signal.Signals[second]
        assert time.monotonic() - begun > 0.9


def ended_by(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    if process.poll() is None:
        process.send_signal(number)
    return process.poll() is not None


def test_signals_that_come_together_are_one_request() -> None:
    with program(GRACEFUL) as (process, output):
        assert output.readline() == "ready uvloop\n"
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
        assert output.readline() == "stopping SIGTERM\n"
        assert process.wait(10) == 7


def test_a_signal_before_the_loop_looks_is_not_lost() -> None:
    text = """
async def main(stop):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(stop.requested.wait(), 10)
    return 5
sys.exit(run(main))
"""
    with program(text) as (process, _):
        assert process.wait(20) == 5


RELOADING = """
async def main(stop):
    times = 0
    def reload():
        nonlocal times
        times += 1
        say("reload " + str(times))
        if times == 2:
            raise ValueError("bad file")
    SETTING
    say("ready")
    await stop.requested.wait()
    return 7
sys.exit(run(main))
"""


def test_each_hangup_reloads_and_one_that_fails_ends_nothing() -> None:
    with program(RELOADING.replace("SETTING", "stop.on_reload = reload")) as (process, output):
        assert output.readline() == "ready\n"
        for number in (1, 2, 3):
            process.send_signal(signal.SIGHUP)
            assert output.readline() == f"reload {number}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7
        assert process.stderr is not None
        assert "ValueError: bad file" in process.stderr.read()


def test_a_hangup_without_anything_to_reload_is_no_end() -> None:
    with program(RELOADING.replace("SETTING", "pass")) as (process, output):
        assert output.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert "nothing to reload" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7


def test_an_exception_is_logged_and_gives_one() -> None:
    text = """
async def main(stop):
    raise RuntimeError("no model folder")
sys.exit(run(main))
"""
    with program(text) as (process, _):
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 1
        record = json.loads(errors)
        assert record["event"] == "service failed"
        assert "RuntimeError: no model folder" in record["exception"]


def test_a_stop_from_inside() -> None:
    seen = []

    async def main(stop: Stop) -> int:
        stop.request("start-up failed")
        stop.request("something later")
        await stop.requested.wait()
        seen.append(stop.reason)
        return 3

    before = signal.getsignal(signal.SIGTERM)
    assert run(main) == 3
    assert seen == ["start-up failed"]
    assert signal.getsignal(signal.SIGTERM) is before


@async_test
async def test_a_stop_begins_unasked() -> None:
    stop = Stop()
    assert (stop.requested.is_set(), stop.reason) == (False, None)


FILES = """
import resource, subprocess
resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, 512))
PREPARE
async def main(stop):
    say(repr(resource.getrlimit(resource.RLIMIT_NOFILE)))
    subprocess.run(["sh", "-c", "ulimit -Sn"], check=True)
    return 0
sys.exit(run(main))
"""


def test_as_many_files_may_be_open_as_the_system_lets_it_and_its_children() -> None:
    with program(FILES.replace("SOFT", "64").replace("PREPARE", "")) as (process, output):
        assert (output.readline(), output.readline()) == ("(512, 512)\n", "512\n")
        assert process.wait(10) == 0


def test_a_limit_that_cannot_be_raised_is_no_reason_to_fail() -> None:
    refuse = "def refuse(*_): raise ValueError('not allowed')\nresource.setrlimit = refuse"
    with program(FILES.replace("SOFT", "64").replace("PREPARE", refuse)) as (process, output):
        assert (output.readline(), output.readline()) == ("(64, 512)\n", "64\n")
        assert process.wait(10) == 0


CHILD = "die_with_parent({arguments}); say('armed'); time.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux feature")
def test_a_child_dies_with_its_parent() -> None:
    grandchild = HEAD + CHILD.format(arguments="signal.SIGKILL")
    text = f"""
import subprocess
child = subprocess.Popen([sys.executable, "-c", {grandchild!r}], stdout=subprocess.PIPE)
child.stdout.readline()
say(str(child.pid))
time.sleep(600)
"""
    with program(text) as (process, output):
        child = int(output.readline())
        assert alive(child)
        process.kill()
        process.wait(10)
        eventually_sync(lambda: not alive(child))


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux feature")
def test_a_child_whose_parent_is_already_gone_ends_at_once() -> None:
    with program(CHILD.format(arguments="signal.SIGTERM, parent=1234567")) as (process, output):
        assert process.wait(10) == -signal.SIGTERM
        assert output.read() == ""
    with program(f"die_with_parent(parent={os.getpid()}); say('armed')") as (process, output):
        assert output.readline() == "armed\n"


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie nobody has waited for does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_other_systems_say_that_there_is_no_such_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert die_with_parent() is False
