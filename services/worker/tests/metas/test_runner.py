"""Metas before an engine that executes when the test says so."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Any, cast, final

import numpy as np
import pytest
from numpy.typing import NDArray

from reactant_core.bundle.manifest import Manifest, parse_manifest
from reactant_core.bundle.repository import Bundle
from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    ModelUnavailable,
    ServingError,
)
from reactant_core.testing import async_test, eventually
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Completed, Engine, Outcome, Submission
from reactant_worker.metas.runner import MetaRunner
from reactant_worker.models.build import describe_meta
from reactant_worker.models.catalog import Catalog
from reactant_worker.models.hooks import HookRequest, load_hooks
from reactant_worker.models.served import ServedModel

MODEL = parse_manifest(
    b"""
format_version: "3"
executable_inputs: [{name: x, dtype: f32, shape: nk, dims: {k: 2}}]
executable_outputs: [{name: y, dtype: f32, shape: nk, dims: {k: 2}}]
batching: {compiled_batch_sizes: [1, 4]}
"""
)
META = b"""
format_version: "3"
kind: meta
meta: {calls: %s}
client_inputs: [{name: x, dtype: f32, shape: rk, dims: {r: -1, k: 2}}]
client_outputs: [{name: y, dtype: f32, shape: rk, dims: {r: -1, k: 2}}]
"""
X = np.array([[1, 2], [3, 4]], np.float32)


@final
class Device:
    """Keeps what is submitted until `finish`; doubles its input unless told otherwise."""

    def __init__(self) -> None:
        self.bridge = EngineBridge(asyncio.get_running_loop())
        self.bridge.connect(cast(Engine, self))
        self.queue: list[Submission] = []
        self.cancelled: list[Submission] = []
        self.at_once = False

    def submit(self, submissions: Sequence[Submission]) -> None:
        self.queue += submissions
        if self.at_once:
            while self.queue:
                self.finish()

    def cancel(self, submission: Submission) -> bool:
        self.queue.remove(submission)
        self.cancelled.append(submission)
        return True

    def delivered(self, seconds: float) -> None:
        """Of no interest here."""

    def finish(self, outcome: ServingError | None = None) -> Submission:
        submission = self.queue.pop(0)
        done: Outcome = outcome or Completed((submission.inputs[0] * 2,), 0.25, 0.0, 0.5, 0.0, 0.0)
        self.bridge.deliver([(submission, done)])
        return submission


_open: list[MetaRunner] = []


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


@final
class Room:
    """A catalog with model `double`, and metas made of source text."""

    def __init__(self, folder: Path, *, concurrency: int = 2) -> None:
        self._folder = folder
        self._serial = itertools.count()
        self.catalog = Catalog()
        self.device = Device()
        self.metas = MetaRunner(
            catalog=self.catalog,
            bridge=self.device.bridge,
            clock=SYSTEM_CLOCK,
            concurrency=concurrency,
            compute_threads=2,
        )
        _open.append(self.metas)
        self.double = self.serve("double", MODEL, "")

    def serve(self, name: str, manifest: Manifest, hooks: str) -> ServedModel:
        bundle = self._bundle(name, manifest, hooks)
        model = ServedModel(
            bundle=bundle,
            hooks=load_hooks(bundle),
            client_inputs={spec.name: spec for spec in manifest.inputs},
            client_outputs={spec.name: spec for spec in manifest.outputs},
            executable_inputs=manifest.executable_inputs,
            executable_outputs=manifest.executable_outputs,
            sizes=manifest.compiled_batch_sizes,
            variants=(),
            output_shapes={None: ((1, 2),)},
            weight_bytes=0,
        )
        self.catalog.ready(self.catalog.begin(name), model)
        return model

    def meta(self, run: str, calls: str = "[double]", name: str = "m") -> ServedModel:
        bundle = self._bundle(name, parse_manifest(META % calls.encode()), run)
        model = describe_meta(bundle, load_hooks(bundle))
        self.catalog.ready(self.catalog.begin(name), model)
        return model

    def _bundle(self, name: str, manifest: Manifest, hooks: str) -> Bundle:
        folder = self._folder / f"{next(self._serial)}"
        folder.mkdir()
        (folder / "model.py").write_text(dedent(hooks))
        return Bundle(name, folder, manifest, {}, None, folder / "model.py")

    async def run(
        self, meta: ServedModel, x: NDArray[Any] = X, deadline: float | None = None
    ) -> NDArray[Any]:
        request = HookRequest("id", MappingProxyType({}), 0, deadline)
        async with self.metas.answer(meta, {"x": x}, request) as answer:
            return np.array(answer.outputs["y"])

    def start(self, meta: ServedModel, **options: Any) -> asyncio.Task[NDArray[Any]]:
        return asyncio.ensure_future(self.run(meta, **options))

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)


ONCE = """
    def run(inputs, call, request):
        return {"y": call("double", inputs)["y"]}
"""
TWICE = """
    done = []

    def run(inputs, call, request):
        try:
            x = inputs["x"]
            for stage in range(2):
                x = call("double", {"x": x})["y"]
                done.append(stage)
        except Exception:
            done.append("caught")
        return {"y": x}
"""


def done(meta: ServedModel) -> list[Any]:
    """What a meta has noted in a list of that name."""
    assert meta.hooks is not None
    return cast(list[Any], meta.hooks._module.done)


@async_test
async def test_a_stage_inherits_the_deadline_and_takes_arrays_by_reference(
    tmp_path: Path,
) -> None:
    room = Room(tmp_path)
    deadline = time.monotonic() + 60
    task = room.start(room.meta(ONCE), deadline=deadline)
    await room.until(lambda: len(room.device.queue) == 1)
    (submission,) = room.device.queue
    assert submission.deadline == deadline
    assert (submission.model, submission.rows, submission.variant) == (room.double.key, 2, None)
    assert submission.inputs[0] is X
    room.device.finish()
    np.testing.assert_array_equal(await task, X * 2)


@async_test
async def test_the_first_stage_waits_its_turn_and_later_ones_go_ahead(tmp_path: Path) -> None:
    room = Room(tmp_path)
    task = room.start(room.meta(TWICE))
    committed = []
    for _ in range(2):
        await room.until(lambda: len(room.device.queue) == 1)
        committed.append(room.device.queue[0].committed)
        room.device.finish()
    np.testing.assert_array_equal(await task, X * 4)
    assert committed == [False, True]


@async_test
async def test_stages_count_as_executions_of_the_model_and_as_no_clients_requests(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.device.at_once = True
    np.testing.assert_array_equal(await room.run(room.meta(TWICE)), X * 4)
    entry = room.catalog.get("double")
    assert entry is not None
    assert entry.counters.compute_infer.count == 2
    assert entry.counters.compute_infer.seconds == 1.0
    assert (entry.counters.success.count, entry.counters.rows) == (0, 0)


@async_test
async def test_cancelled_its_queued_stage_is_taken_out_and_no_other_begins(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(TWICE)
    task = room.start(meta)
    await room.until(lambda: len(room.device.queue) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(room.device.cancelled) == 1
    await room.until(lambda: room.metas.running == 0)
    # Not even its own `except Exception` saw anything.
    assert done(meta) == []
    assert not room.device.queue
    await asyncio.wait_for(entry_of(room).wait_released(room.double), 1)


def entry_of(room: Room, name: str = "double") -> Any:
    entry = room.catalog.get(name)
    assert entry is not None
    return entry


@async_test
async def test_cancelled_on_the_device_it_stops_before_the_next_stage(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(
        """
        import threading
        done, go = [], threading.Event()

        def run(inputs, call, request):
            y = call("double", inputs)["y"]
            done.append(1)
            assert go.wait(10)
            y = call("double", {"x": y})["y"]
            done.append(2)
            return {"y": y}
        """
    )
    task = room.start(meta)
    await room.until(lambda: len(room.device.queue) == 1)
    room.device.finish()
    await room.until(lambda: done(meta) == [1])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert meta.hooks is not None
    meta.hooks._module.go.set()
    await room.until(lambda: room.metas.running == 0)
    assert done(meta) == [1]
    assert not room.device.queue


@async_test
async def test_it_stops_at_a_stage_when_the_deadline_has_passed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(TWICE)
    deadline = time.monotonic() + 0.05
    task = room.start(meta, deadline=deadline)
    await room.until(lambda: len(room.device.queue) == 1)
    await room.until(lambda: time.monotonic() > deadline)
    room.device.finish()
    with pytest.raises(DeadlineExceeded, match="model 'm': the deadline passed"):
        await task
    assert done(meta) == [0]
    assert not room.device.queue


@async_test
async def test_a_stage_that_the_engine_drops_ends_the_request(tmp_path: Path) -> None:
    room = Room(tmp_path)
    task = room.start(room.meta(TWICE))
    await room.until(lambda: len(room.device.queue) == 1)
    room.device.finish(DeadlineExceeded("the deadline passed in the queue"))
    with pytest.raises(DeadlineExceeded):
        await task


@async_test
async def test_a_stage_begins_on_the_version_that_is_current(tmp_path: Path) -> None:
    room = Room(tmp_path)
    task = room.start(room.meta(TWICE))
    await room.until(lambda: len(room.device.queue) == 1)
    newer = room.serve("double", MODEL, "")
    released = asyncio.ensure_future(entry_of(room).wait_released(room.double))
    await asyncio.sleep(0)
    assert not released.done()
    assert room.device.finish().model == room.double.key
    await asyncio.wait_for(released, 5)
    await room.until(lambda: len(room.device.queue) == 1)
    assert room.device.finish().model == newer.key
    await task
    await asyncio.wait_for(entry_of(room).wait_released(newer), 5)


@async_test
async def test_gated_metas_wait_and_metas_that_call_nothing_do_not(tmp_path: Path) -> None:
    room = Room(tmp_path, concurrency=1)
    meta = room.meta(ONCE)
    alone = room.meta("def run(inputs, call, request): return {'y': inputs['x']}", "[]", "alone")
    first, second, third = (room.start(meta) for _ in range(3))
    await room.until(lambda: len(room.device.queue) == 1)
    assert room.metas.waiting(meta) == 2
    np.testing.assert_array_equal(await room.run(alone), X)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    assert room.metas.waiting(meta) == 1
    room.device.finish()
    await first
    await room.until(lambda: len(room.device.queue) == 1)
    room.device.finish()
    await third
    assert room.metas.waiting(meta) == 0


@async_test
async def test_threads_of_a_meta_call_one_after_the_other(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(
        """
        from concurrent.futures import ThreadPoolExecutor

        def run(inputs, call, request):
            with ThreadPoolExecutor(3) as pool:
                parts = list(pool.map(lambda i: call("double", {"x": inputs["x"] + i})["y"], range(3)))
            return {"y": sum(parts)}
        """
    )
    task = room.start(meta)
    for _ in range(3):
        await room.until(lambda: len(room.device.queue) == 1)
        await asyncio.sleep(0.02)
        assert len(room.device.queue) == 1
        room.device.finish()
    np.testing.assert_array_equal(await task, (X * 3 + 3) * 2)


@async_test
async def test_a_call_after_the_request_is_over_does_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.device.at_once = True
    meta = room.meta(
        """
        import threading
        done, go = [], threading.Event()

        def later(call):
            assert go.wait(10)
            for late in (lambda: call("double", {}), lambda: call.scratch(3)):
                try:
                    late()
                except BaseException as error:
                    done.append(type(error).__name__)

        def run(inputs, call, request):
            threading.Thread(target=later, args=(call,)).start()
            return {"y": inputs["x"]}
        """
    )
    await room.run(meta)
    assert meta.hooks is not None
    meta.hooks._module.go.set()
    await room.until(lambda: done(meta) == ["RequestOver", "RequestOver"])


@async_test
async def test_scratch_holds_an_answer_until_it_is_encoded(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(
        """
        def run(inputs, call, request):
            y = call.scratch(inputs["x"].shape)
            y[...] = inputs["x"]
            return {"y": y}
        """,
        "[]",
    )
    request = HookRequest("id", MappingProxyType({}), 0, None)
    async with room.metas.answer(meta, {"x": X}, request) as first:
        kept = first.outputs["y"]
        await room.run(meta, X + 10)
        np.testing.assert_array_equal(kept, X)
    await room.run(meta, X + 20)
    np.testing.assert_array_equal(kept, X + 20)


@async_test
async def test_scratch_of_an_abandoned_request_stays_its_own_while_its_thread_runs(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(
        """
        import threading
        done, go = [], threading.Event()

        def run(inputs, call, request):
            y = call.scratch((2, 2))
            y[...] = inputs["x"]
            if not done:
                done.append(y)
                assert go.wait(10)
            return {"y": y}
        """,
        "[]",
    )
    task = room.start(meta)
    await room.until(lambda: len(done(meta)) == 1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await room.run(meta, X + 10)
    np.testing.assert_array_equal(done(meta)[0], X)
    assert meta.hooks is not None
    meta.hooks._module.go.set()
    await room.until(lambda: room.metas.running == 0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InternalError("execution failed: on fire"), InternalError),
        (ModelUnavailable("the server is shutting down", not_started=True), ModelUnavailable),
    ],
)
@async_test
async def test_errors_of_the_engine_name_meta_and_model(
    tmp_path: Path, error: ServingError, kind: type[ServingError]
) -> None:
    room = Room(tmp_path)
    task = room.start(room.meta(ONCE))
    await room.until(lambda: len(room.device.queue) == 1)
    room.device.finish(error)
    with pytest.raises(kind, match=f"model 'm': model 'double': {error.message}") as caught:
        await task
    # The meta had begun, so that nobody may say otherwise.
    assert not caught.value.not_started


@async_test
async def test_a_model_that_is_not_ready_makes_the_meta_unavailable(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(ONCE)
    room.catalog.unloading(entry_of(room))
    with pytest.raises(ModelUnavailable, match="model 'm': model 'double' is unloading") as caught:
        await room.run(meta)
    assert not caught.value.not_started
    room.catalog.remove(entry_of(room))
    with pytest.raises(ModelUnavailable, match="model 'm': model 'double' is not there"):
        await room.run(meta)


@async_test
async def test_a_meta_that_became_one_of_the_called_is_refused(tmp_path: Path) -> None:
    room = Room(tmp_path)
    meta = room.meta(ONCE)
    room.meta(ONCE, "[]", "double")
    with pytest.raises(InternalError, match="model 'm': model 'double' is a meta"):
        await room.run(meta)


@async_test
async def test_hooks_of_a_called_model_run_on_the_thread_of_the_meta(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.device.at_once = True
    room.serve(
        "double",
        MODEL,
        """
        import threading

        def preprocess(inputs, request):
            assert threading.current_thread().name.startswith("meta-"), threading.current_thread()
            if inputs["x"][0, 0] < 0:
                request.invalid("negative")
            return {"x": inputs["x"] + 1}

        def postprocess(outputs, request):
            assert threading.current_thread().name.startswith("meta-")
            assert request.id == "id"
            return {"y": outputs["y"] + 1}
        """,
    )
    meta = room.meta(ONCE)
    np.testing.assert_array_equal(await room.run(meta), (X + 1) * 2 + 1)
    with pytest.raises(InvalidArgument, match="model 'm': model 'double': negative"):
        await room.run(meta, -X)


@async_test
async def test_a_meta_may_take_a_refusal_for_an_answer(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.device.at_once = True
    room.serve("double", MODEL, "def preprocess(inputs, request): request.invalid('never')")
    meta = room.meta(
        """
        def run(inputs, call, request):
            try:
                return call("double", inputs)
            except call.Refused as refusal:
                assert "never" in str(refusal)
                return {"y": inputs["x"]}
        """
    )
    np.testing.assert_array_equal(await room.run(meta), X)


@async_test
async def test_metas_and_their_models_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """As many requests at once as there are threads, each of many stages with hooks."""
    room = Room(tmp_path)
    room.device.at_once = True
    room.serve("double", MODEL, "def preprocess(inputs, request): return inputs")
    meta = room.meta(TWICE)
    answers = await asyncio.wait_for(asyncio.gather(*(room.run(meta, X + i) for i in range(40))), 20)
    for index, answer in enumerate(answers):
        np.testing.assert_array_equal(answer, (X + index) * 4)
