"""Several children together: each on its own, and all of them ended in order."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reactant_core.lifecycle import Stop
from reactant_core.testing import async_test, eventually
from reactant_policy.restarts import RestartPolicy
from reactant_supervisor.child_life import ChildLife
from reactant_supervisor.children import Child
from reactant_supervisor.node_life import NodeLife
from reactant_supervisor.output import LineOutput
from reactant_supervisor.process_spec import ProcessSpec

pytestmark = pytest.mark.slow

QUICK = RestartPolicy(max_restarts=2, first_delay_seconds=0.001, cap_seconds=0.001)

WORKER = """
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    print("up", flush=True)
    if signal.sigwait({signal.SIGTERM, signal.SIGUSR1}) == signal.SIGUSR1:
        raise SystemExit(3)
    print("ends", flush=True)
"""
GATEWAY = """
    import os, signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("up", flush=True)
    signal.sigwait({signal.SIGTERM})
    print("drains", flush=True)
    hold = int(os.environ["HOLD"])
    os.set_blocking(hold, False)
    try:
        asked = os.read(hold, 1)
    except BlockingIOError:
        asked = b""
    if asked:
        print("stays", flush=True)
        os.set_blocking(hold, True)
        assert os.read(hold, 1) == b""
    print("ends", flush=True)
"""
STUBBORN = """
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("up", flush=True)
    while True:
        signal.sigwait({signal.SIGTERM})
        print("got SIGTERM", flush=True)
"""


class Lines:
    """Everything the children have written."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def has(self, *lines: str) -> bool:
        return all(line in self.all for line in lines)

    def order(self, *lines: str) -> bool:
        """Whether these came, in this order."""
        places = [self.all.index(line) for line in lines]
        return places == sorted(places)


class Nodes:
    """Makes children and nodes of them; every child writes to `lines`."""

    def __init__(self, output: LineOutput, lines: Lines) -> None:
        self._output = output
        self.lines = lines
        self.drained = asyncio.Event()
        self.stopping = 0

    def child(
        self, name: str, code: str, *, policy: RestartPolicy = QUICK, restart_seconds: float = 20.0
    ) -> ChildLife:
        spec = ProcessSpec(
            name,
            (sys.executable, "-S", "-E", "-c", textwrap.dedent(code)),
            dict(os.environ),
            hold_variable="HOLD" if name == "gateway" else None,
        )
        return ChildLife(
            spec, output=self._output, policy=policy, watch=self._watch, restart_seconds=restart_seconds
        )

    async def _watch(self, _: Child) -> None:
        return

    def run(
        self, workers: list[ChildLife], gateway: ChildLife | None, stop: Stop, *, budget: float = 20.0
    ) -> asyncio.Task[int]:
        async def wait_drained() -> None:
            await self.drained.wait()

        def stopping() -> None:
            self.stopping += 1

        node = NodeLife(workers, gateway, wait_drained=wait_drained, budget_seconds=budget)
        return asyncio.create_task(node.run(stop, stopping=stopping))

    async def up(self, *names: str) -> None:
        await eventually(lambda: self.lines.has(*(f"[{name}] up" for name in names)))


@asynccontextmanager
async def nodes() -> AsyncIterator[Nodes]:
    read_end, write_end = os.pipe()
    output = LineOutput(write_end)
    output.start()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    lines = Lines()

    async def read() -> None:
        while line := await reader.readline():
            lines.all.append(line.decode().removesuffix("\n"))

    reading = asyncio.create_task(read())
    try:
        yield Nodes(output, lines)
    finally:
        output.close()
        os.close(write_end)
        await reading
        transport.close()


def alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(life: ChildLife) -> int:
    pid = life.state.pid
    assert pid is not None
    return pid


@async_test
async def test_a_stop_goes_gateway_drained_then_workers_then_gateway() -> None:
    async with nodes() as made:
        stop = Stop()
        workers = [made.child("worker0", WORKER), made.child("worker1", WORKER)]
        gateway = made.child("gateway", GATEWAY)
        running = made.run(workers, gateway, stop)
        await made.up("worker0", "worker1", "gateway")
        pids = [pid_of(life) for life in (*workers, gateway)]
        stop.request("test")
        await eventually(lambda: made.lines.has("[gateway] drains"))
        # It answers what it accepted: the workers have to be there.
        assert [life.state.word for life in (*workers, gateway)] == ["running", "running", "stopping"]
        made.drained.set()
        assert await running == 0
        assert not any(map(alive, pids))
        assert made.stopping == 1
        await eventually(lambda: made.lines.has("[gateway] ends"))
        for worker in ("[worker0] ends", "[worker1] ends"):
            assert made.lines.order("[gateway] drains", "[gateway] stays", worker, "[gateway] ends")
        assert [life.state.word for life in (*workers, gateway)] == ["stopped"] * 3


@async_test
async def test_a_gateway_that_does_not_drain_loses_its_share_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with nodes() as made:
        stop = Stop()
        running = made.run([made.child("worker0", WORKER)], made.child("gateway", GATEWAY), stop, budget=1.35)
        await made.up("worker0", "gateway")
        begun = asyncio.get_running_loop().time()
        stop.request("test")
        assert await running == 0
        assert 1.0 < asyncio.get_running_loop().time() - begun < 1.35
        await eventually(lambda: made.lines.has("[gateway] ends"))
        assert made.lines.order("[gateway] drains", "[worker0] ends", "[gateway] ends")
        assert "has not drained in its share" in caplog.text


@async_test
async def test_what_does_not_stop_is_killed_within_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes() as made:
        stop = Stop()
        lives = [made.child("worker0", STUBBORN), made.child("worker1", WORKER)]
        gateway = made.child("gateway", STUBBORN)
        running = made.run(lives, gateway, stop, budget=0.1)
        await made.up("worker0", "worker1", "gateway")
        pids = [pid_of(life) for life in (*lives, gateway)]
        stop.request("test")
        assert await running == 1
        assert not any(map(alive, pids))
        assert "worker0 did not stop within 0.1 s, killing it" in caplog.text
        assert "gateway did not stop within 0.1 s, killing it" in caplog.text
        assert "worker1 did not stop" not in caplog.text


@async_test
async def test_a_gateway_that_has_died_holds_up_no_stop() -> None:
    slow = RestartPolicy(first_delay_seconds=3600, cap_seconds=3600)
    async with nodes() as made:
        stop = Stop()
        gateway = made.child("gateway", GATEWAY, policy=slow)
        running = made.run([made.child("worker0", WORKER)], gateway, stop)
        await made.up("worker0", "gateway")
        os.kill(pid_of(gateway), 9)
        await eventually(lambda: gateway.state.word == "waiting")
        stop.request("test")
        assert await asyncio.wait_for(running, 10) == 0


@async_test
async def test_a_worker_that_dies_during_the_drain_is_not_started_again() -> None:
    async with nodes() as made:
        stop = Stop()
        worker = made.child("worker0", WORKER)
        running = made.run([worker, made.child("worker1", WORKER)], made.child("gateway", GATEWAY), stop)
        await made.up("worker0", "worker1", "gateway")
        stop.request("test")
        await eventually(lambda: made.lines.has("[gateway] drains"))
        os.kill(pid_of(worker), 10)
        await eventually(lambda: worker.state.word == "stopped")
        made.drained.set()
        assert await running == 1
        assert made.lines.all.count("[worker0] up") == 1
        assert worker.state.last_exit == "exited with code 3"


@async_test
async def test_one_that_keeps_dying_touches_no_other_until_it_is_given_up() -> None:
    async with nodes() as made:
        dying = made.child("worker0", "print('life', flush=True); raise SystemExit(3)")
        good, gateway = made.child("worker1", WORKER), made.child("gateway", GATEWAY)
        made.drained.set()
        assert await made.run([dying, good], gateway, Stop()) == 1
        await eventually(lambda: made.lines.has("[worker1] ends", "[gateway] ends"))
        assert made.lines.all.count("[worker0] life") == 3
        assert made.lines.all.count("[worker1] up") == made.lines.all.count("[gateway] up") == 1
        assert (dying.state.word, dying.state.restarts, good.state.restarts) == ("failed", 2, 0)


@async_test
async def test_one_that_refuses_its_configuration_gives_the_node_its_code() -> None:
    async with nodes() as made:
        made.drained.set()
        refusing = made.child("worker0", "raise SystemExit(78)")
        running = made.run([refusing, made.child("worker1", WORKER)], made.child("gateway", GATEWAY), Stop())
        assert await running == 78


@async_test
async def test_one_that_refuses_its_configuration_later_on_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = tmp_path / "away"
    code = f"""
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM, signal.SIGUSR1}})
        if os.path.exists({str(away)!r}):
            os.remove({str(away)!r})
            raise SystemExit(78)
        print("up", flush=True)
        if signal.sigwait({{signal.SIGTERM, signal.SIGUSR1}}) == signal.SIGUSR1:
            raise SystemExit(3)
    """
    async with nodes() as made:
        stop = Stop()
        made.drained.set()
        worker, other, gateway = (
            made.child("worker0", code),
            made.child("worker1", WORKER),
            made.child("gateway", GATEWAY),
        )
        running = made.run([worker, other], gateway, stop)
        await made.up("worker0", "worker1", "gateway")
        pids = [pid_of(other), pid_of(gateway)]
        away.touch()
        os.kill(pid_of(worker), 10)
        await eventually(lambda: made.lines.all.count("[worker0] up") == 2)
        assert "worker0 exited with code 78" in caplog.text
        assert "it refused its configuration, but not at its first start" in caplog.text
        await eventually(lambda: worker.state.word == "running")
        assert (worker.state.restarts, worker.state.failures) == (2, 2)
        assert [pid_of(other), pid_of(gateway)] == pids
        stop.request("test")
        assert await running == 0


@pytest.mark.parametrize("name", ["worker0", "gateway"])
def test_a_restart_that_was_asked_for_is_no_failure(name: str) -> None:
    @async_test
    async def scenario() -> None:
        async with nodes() as made:
            stop = Stop()
            lives = {"worker0": made.child("worker0", WORKER), "gateway": made.child("gateway", GATEWAY)}
            running = made.run([lives["worker0"]], lives["gateway"], stop)
            await made.up("worker0", "gateway")
            before = {each: pid_of(life) for each, life in lives.items()}
            lives[name].restart()
            lives[name].restart()
            await eventually(lambda: made.lines.all.count(f"[{name}] up") == 2)
            await eventually(lambda: lives[name].state.word == "running")
            assert made.lines.has(f"[{name}] ends")
            assert not made.lines.has("[gateway] stays")
            after = {each: pid_of(life) for each, life in lives.items()}
            assert [each for each in lives if before[each] != after[each]] == [name]
            state = lives[name].state
            assert (state.restarts, state.failures, state.last_exit) == (1, 0, "exited with code 0")
            made.drained.set()
            stop.request("test")
            assert await running == 0

    scenario()


@async_test
async def test_a_stop_while_one_ends_for_its_restart_holds_it_and_signals_it_no_more() -> None:
    busy = """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        print("up", flush=True)
        signal.sigwait({signal.SIGTERM})
        print("drains", flush=True)
        signal.sigwait({signal.SIGUSR1})
        assert not signal.sigpending()
        assert os.read(int(os.environ["HOLD"]), 1)
        assert not os.read(int(os.environ["HOLD"]), 1)
        print("ends", flush=True)
    """
    async with nodes() as made:
        stop = Stop()
        gateway = made.child("gateway", busy)
        running = made.run([made.child("worker0", WORKER)], gateway, stop)
        await made.up("worker0", "gateway")
        gateway.restart()
        await eventually(lambda: made.lines.has("[gateway] drains"))
        stop.request("test")
        await eventually(lambda: made.stopping == 1)
        os.kill(pid_of(gateway), 10)
        made.drained.set()
        assert await running == 0
        await eventually(lambda: made.lines.has("[gateway] ends"))
        assert made.lines.order("[worker0] ends", "[gateway] ends")


@async_test
async def test_a_restart_ends_one_that_does_not_stop_and_one_that_waits() -> None:
    slow = RestartPolicy(first_delay_seconds=3600, cap_seconds=3600)
    async with nodes() as made:
        stop = Stop()
        stubborn = made.child("worker0", STUBBORN, restart_seconds=0.01)
        waiting = made.child("worker1", WORKER, policy=slow)
        running = made.run([stubborn, waiting], None, stop, budget=0.1)
        await made.up("worker0", "worker1")
        stubborn.restart()
        await eventually(lambda: made.lines.all.count("[worker0] up") == 2)
        os.kill(pid_of(waiting), 9)
        await eventually(lambda: waiting.state.word == "waiting")
        waiting.restart()
        await eventually(lambda: made.lines.all.count("[worker1] up") == 2)
        stop.request("test")
        assert await running == 1


@async_test
async def test_a_hangup_reaches_those_that_listen_for_it_and_ends_nobody() -> None:
    listening = """
        import signal, threading
        signal.signal(signal.SIGHUP, lambda *_: print("reloads", flush=True))
        print("up", flush=True)
        while True:
            signal.pause()
    """
    async with nodes() as made:
        stop = Stop()
        listener, deaf = made.child("worker0", listening), made.child("worker1", WORKER)
        running = made.run([listener, deaf], None, stop)
        await made.up("worker0", "worker1")
        assert (listener.hang_up(), deaf.hang_up()) == (True, False)
        await eventually(lambda: made.lines.has("[worker0] reloads"))
        assert (listener.state.restarts, deaf.state.restarts) == (0, 0)
        stop.request("test")
        assert await running == 0
        assert not listener.hang_up()


@async_test
async def test_cancelling_leaves_no_child() -> None:
    async with nodes() as made:
        lives = [made.child("worker0", WORKER), made.child("gateway", GATEWAY)]
        running = made.run([lives[0]], lives[1], Stop())
        await made.up("worker0", "gateway")
        pids = [pid_of(life) for life in lives]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not any(map(alive, pids))


def test_a_loop_that_ends_with_everything_on_it_leaves_no_child() -> None:
    pids: list[int] = []

    @async_test
    async def scenario() -> None:
        async with nodes() as made:
            lives = [made.child("worker0", STUBBORN), made.child("gateway", STUBBORN)]
            made.run([lives[0]], lives[1], Stop())
            await made.up("worker0", "gateway")
            pids.extend(pid_of(life) for life in lives)
            raise LookupError("bad luck")

    with pytest.raises(LookupError):
        scenario()
    assert not any(map(alive, pids))
