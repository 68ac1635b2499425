from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.lifecycle import Stop
from reactant_core.testing import FakeClock, async_test, eventually
from reactant_policy.restarts import EX_CONFIG, GiveUp, RestartPolicy
from reactant_supervisor.child_life import ChildLife, describe_exit
from reactant_supervisor.children import Child, start_child
from reactant_supervisor.node_life import NodeLife
from reactant_supervisor.output import LineOutput
from reactant_supervisor.process_spec import ProcessSpec

QUICK = RestartPolicy(max_restarts=3, first_delay_seconds=0.001, cap_seconds=0.001)


def script(code: str, name: str = "worker0") -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-S", "-E", "-c", textwrap.dedent(code)), dict(os.environ))


SLEEPER = script("import os, time; print('up', os.getpid(), flush=True); time.sleep(60)")


class Lines:
    """What came out of the supervisor's stream so far."""

    def __init__(self, output: LineOutput, reader: asyncio.StreamReader) -> None:
        self.output = output
        self._reader = reader

    async def next(self) -> str:
        line = await asyncio.wait_for(self._reader.readline(), 20)
        return line.decode()

    async def until(self, text: str) -> str:
        while text not in (line := await self.next()):
            assert line, f"the stream ended before {text!r}"
        return line


@asynccontextmanager
async def collected() -> AsyncIterator[Lines]:
    read_end, write_end = os.pipe()
    output = LineOutput(write_end)
    output.start()
    reader = asyncio.StreamReader(limit=1 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        yield Lines(output, reader)
    finally:
        transport.close()
        output.close()
        os.close(write_end)


async def no_watch(_: Child) -> None:
    return


def make_life(
    spec: ProcessSpec,
    lines: Lines,
    *,
    policy: RestartPolicy = QUICK,
    watch: Callable[[Child], Awaitable[None]] = no_watch,
    clock: Clock = SYSTEM_CLOCK,
    restart_seconds: float = 20.0,
) -> ChildLife:
    return ChildLife(
        spec, output=lines.output, policy=policy, watch=watch, clock=clock, restart_seconds=restart_seconds
    )


async def not_drained() -> None:
    raise AssertionError("there is no gateway")


def keep(life: ChildLife, stop: Stop, *, budget: float = 20.0) -> asyncio.Task[int]:
    """Runs a node of one worker; its exit code."""
    node = NodeLife([life], None, wait_drained=not_drained, budget_seconds=budget)
    return asyncio.create_task(node.run(stop))


def alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@async_test
async def test_both_streams_come_out_prefixed_and_the_last_line_needs_no_end() -> None:
    async with collected() as lines:
        spec = script("""
            import sys
            print("out", flush=True); print("err", file=sys.stderr, flush=True)
            sys.stdout.write("no line end")
        """)
        child = await start_child(spec, lines.output)
        assert await child.wait() == 0
        assert [await lines.next() for _ in range(3)] == [
            "[worker0] out\n",
            "[worker0] err\n",
            "[worker0] no line end\n",
        ]


@pytest.mark.slow
@async_test
async def test_lines_of_many_children_stay_whole_under_load() -> None:
    code = """
        import os
        text = b"".join(b"<%d %s>\\n" % (n, b"x" * (n * 37 % 211)) for n in range(20000))
        at = 0
        while at < len(text):  # torn writes, as a busy pipe gives them
            at += os.write(1, text[at:at + 97 + at % 4001])
    """
    async with collected() as lines:
        children = [await start_child(script(code, f"worker{i}"), lines.output) for i in range(4)]
        seen = {f"worker{i}": 0 for i in range(4)}

        async def read() -> None:
            for _ in range(4 * 20_000):
                name, _, rest = (await lines.next()).partition("] ")
                n = seen[name[1:]]
                assert rest == f"<{n} {'x' * (n * 37 % 211)}>\n"
                seen[name[1:]] = n + 1

        await asyncio.gather(read(), *(child.wait() for child in children))
        assert set(seen.values()) == {20_000}


@async_test
async def test_the_last_words_of_a_dead_child_come_out_although_the_output_is_full() -> None:
    read_end, write_end = os.pipe()
    output = LineOutput(write_end, high_water_bytes=1)
    output.start()
    while output.write(b"x" * 65536 + b"\n"):
        pass
    spec = script("""
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        print("first", flush=True)
        signal.sigwait({signal.SIGUSR1})
        print("why it died", flush=True)
    """)
    child = await start_child(spec, output)
    transport = child._log._transport
    assert transport is not None
    await eventually(lambda: not transport.is_reading(), what="the child is paused")
    os.kill(child.pid, signal.SIGUSR1)
    assert await asyncio.wait_for(child.wait(), 20) == 0
    with os.fdopen(read_end, "rb") as reader:
        await eventually(lambda: reader.readline() == b"[worker0] why it died\n")
    output.close()
    os.close(write_end)


@async_test
async def test_a_grandchild_that_holds_the_pipe_does_not_hold_up_the_end() -> None:
    async with collected() as lines:
        spec = script("""
            import os, time
            reader, writer = os.pipe()
            if os.fork() == 0:
                print("grandchild", os.getpid(), flush=True)
                os.write(writer, b".")
                time.sleep(60)
            else:
                os.read(reader, 1)
                os.kill(os.getpid(), 9)
        """)
        child = await start_child(spec, lines.output)
        grandchild = int((await lines.until("grandchild")).split()[-1])
        assert await child.wait() == -signal.SIGKILL
        await eventually(lambda: not alive(grandchild))


@pytest.mark.slow
@async_test
async def test_a_dying_child_is_restarted_then_given_up() -> None:
    async with collected() as lines:
        ended = await make_life(script("print('life', flush=True); raise SystemExit(3)"), lines).run()
        assert isinstance(ended, GiveUp)
        assert ended.failures == 4
        assert [await lines.next() for _ in range(4)] == ["[worker0] life\n"] * 4


@async_test
async def test_a_refused_configuration_is_not_retried() -> None:
    async with collected() as lines:
        ended = await make_life(script(f"raise SystemExit({EX_CONFIG})"), lines).run()
        assert isinstance(ended, GiveUp)
        assert (ended.failures, "configuration" in ended.reason) == (1, True)


@pytest.mark.slow
@async_test
async def test_a_configuration_refused_at_a_later_start_has_the_restarts_of_any_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "started"
    spec = script(f"""
        import pathlib
        mark = pathlib.Path({str(mark)!r})
        code = {EX_CONFIG} if mark.exists() else 3
        mark.touch()
        raise SystemExit(code)
    """)
    async with collected() as lines:
        life = make_life(spec, lines)
        ended = await life.run()
        assert isinstance(ended, GiveUp)
        assert (ended.failures, ended.configuration_refused) == (4, False)
        assert (life.state.restarts, life.state.last_exit) == (3, f"exited with code {EX_CONFIG}")
        assert caplog.text.count("s; it refused its configuration, but not at its first start") == 2


class Process:
    """Takes a signal, and notes what is in the pipe then."""

    def __init__(self, hold: int) -> None:
        os.set_blocking(hold, False)
        self._hold = hold
        self.seen: list[tuple[int, bytes]] = []

    def send_signal(self, number: int) -> None:
        try:
            self.seen.append((number, os.read(self._hold, 8)))
        except BlockingIOError:
            self.seen.append((number, b""))


@pytest.mark.parametrize("held", [True, False])
def test_whoever_is_held_knows_before_the_signal(held: bool) -> None:
    read_end, write_end = os.pipe()
    process = Process(read_end)
    child = Child(SLEEPER, cast(Any, process), cast(Any, None), write_end)
    child.terminate(held=held)
    child.terminate(held=False)
    assert [(number, len(data)) for number, data in process.seen] == [(signal.SIGTERM, held)]
    child.release()
    assert os.read(read_end, 1) == b""
    os.close(read_end)


def test_one_that_has_ended_cannot_be_held() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    child = Child(SLEEPER, cast(Any, Gone()), cast(Any, None), write_end)
    child.terminate(held=True)
    child.release()


class Gone:
    """Has been waited for."""

    def send_signal(self, _: int) -> None:
        raise ProcessLookupError


@pytest.mark.slow
@async_test
async def test_good_lives_begin_a_new_row_for_ever() -> None:
    clock = FakeClock()
    stop = Stop()
    lives = 0

    async def watch(child: Child) -> None:
        nonlocal lives
        lives += 1
        clock.advance(60)
        if lives == 10:
            stop.request("test")
        else:
            child.kill()

    async with collected() as lines:
        assert await keep(make_life(SLEEPER, lines, watch=watch, clock=clock), stop) == 0
        assert lives == 10


@async_test
async def test_a_program_that_cannot_be_started_counts_as_failures() -> None:
    async with collected() as lines:
        ended = await make_life(ProcessSpec("worker0", ("/nonexistent/program",), {}), lines).run()
        assert isinstance(ended, GiveUp)


@async_test
async def test_a_stop_is_forwarded_once_and_a_clean_end_is_clean() -> None:
    async with collected() as lines:
        stop = Stop()
        spec = script("""
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            print("up", flush=True)
            signal.sigwait({signal.SIGTERM})
            again = signal.sigtimedwait({signal.SIGTERM}, 0.1)
            print("again", again, flush=True)
        """)
        running = keep(make_life(spec, lines), stop)
        await lines.until("up")
        stop.request("SIGTERM")
        assert await lines.until("again") == "[worker0] again None\n"
        assert await running == 0


@pytest.mark.parametrize(
    ("code", "clean"),
    [("signal.signal(signal.SIGTERM, lambda *_: exit(5))", False), ("", True)],
    ids=["an error while stopping", "stopped before it listens for signals"],
)
def test_how_the_child_ends_decides_whether_a_stop_is_clean(code: str, clean: bool) -> None:
    @async_test
    async def scenario() -> None:
        async with collected() as lines:
            stop = Stop()
            spec = script(f"import signal\n{code}\nprint('up', flush=True)\nsignal.pause()")
            running = keep(make_life(spec, lines), stop)
            await lines.until("up")
            stop.request("SIGTERM")
            assert await running == (0 if clean else 1)

    scenario()


@async_test
async def test_a_child_that_does_not_stop_in_the_budget_is_killed_with_its_group() -> None:
    async with collected() as lines:
        stop = Stop()
        spec = script("""
            import os, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = os.fork()
            if child:
                print("pids", os.getpid(), child, flush=True)
            time.sleep(60)
        """)
        running = keep(make_life(spec, lines), stop, budget=0.01)
        pids = [int(pid) for pid in (await lines.until("pids")).split()[-2:]]
        stop.request("SIGTERM")
        assert await running == 1
        await eventually(lambda: not any(map(alive, pids)))


@async_test
async def test_a_stop_during_the_backoff_ends_it_at_once() -> None:
    slow = RestartPolicy(first_delay_seconds=3600, cap_seconds=3600)
    async with collected() as lines:
        stop = Stop()
        running = keep(make_life(script("print('life', flush=True)"), lines, policy=slow), stop)
        await lines.until("life")
        stop.request("SIGTERM")
        assert await asyncio.wait_for(running, 20) == 0


@async_test
async def test_cancelling_leaves_no_child() -> None:
    async with collected() as lines:
        spec = script("import os,time; print('pid', os.getpid(), flush=True); time.sleep(60)")
        running = keep(make_life(spec, lines), Stop())
        pid = int((await lines.until("pid")).split()[-1])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not alive(pid)


@async_test
async def test_a_watcher_that_fails_does_not_touch_the_child(caplog: pytest.LogCaptureFixture) -> None:
    async def watch(_: Child) -> None:
        raise ValueError("bad luck")

    async with collected() as lines:
        stop = Stop()
        spec = script("import time; print('up', flush=True); time.sleep(60)")
        running = keep(make_life(spec, lines, watch=watch), stop)
        await lines.until("up")
        await eventually(lambda: "can no longer be watched" in caplog.text)
        assert not running.done()
        stop.request("SIGTERM")
        assert await running == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "exited with code 3"),
        (-11, "was killed by SIGSEGV"),
        (-63, "was killed by signal 63"),
    ],
)
def test_ends_are_described(code: int, text: str) -> None:
    assert describe_exit(code) == text
