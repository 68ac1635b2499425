"""How long a start waits for workers, and when it must not go on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reactant_gateway.packing.startup import SILENT_SECONDS, StartRefused, StartWait, progress
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.probe import SAYS_NOT_READY
from reactant_policy.routing.table import ModelView, WorkerView


class Handle:
    """What the wait reads of a handle."""

    def __init__(self, name: str, discipline: str = "fifo") -> None:
        self.name = name
        self.reason = "connection refused"
        self.view = WorkerView(name, False, {}, discipline)

    @property
    def ready(self) -> bool:
        return self.view.available

    def becomes(self, *models: str, reason: str = "", discipline: str = "fifo") -> None:
        views = {name: ModelView(name, state) for name, _, state in (m.partition(":") for m in models)}
        self.reason = reason
        self.view = WorkerView(self.name, not reason, views, discipline)


def fleet(*names: str) -> list[WorkerHandle]:
    return cast("list[WorkerHandle]", [Handle(name) for name in names])


def test_over_when_all_are_ready() -> None:
    workers: Any = fleet("a", "b")
    wait = StartWait(0, None)
    assert not wait.over(0, workers)
    workers[0].becomes()
    assert not wait.over(1, workers)
    workers[1].becomes()
    assert wait.over(2, workers)


def test_a_limit_holds_whatever_they_do() -> None:
    workers: Any = fleet("a", "b")
    workers[0].becomes(reason=SAYS_NOT_READY)
    wait = StartWait(100, 30)
    assert not wait.over(129, workers)
    assert wait.over(130, workers)
    assert StartWait(100, 0).over(100, workers)


def test_without_one_a_worker_that_compiles_is_waited_for_as_long_as_it_takes() -> None:
    workers: Any = fleet("a", "b")
    workers[0].becomes()
    workers[1].becomes(reason=SAYS_NOT_READY)
    wait = StartWait(0, None)
    assert not any(wait.over(seconds, workers) for seconds in range(0, 3600, 10))
    workers[1].reason = "connection refused"
    assert not wait.over(3590 + SILENT_SECONDS - 1, workers)
    assert wait.over(3590 + SILENT_SECONDS, workers)


def test_a_silent_worker_is_waited_for_only_so_long() -> None:
    workers: Any = fleet("a", "b")
    workers[0].becomes()
    wait = StartWait(0, None)
    assert not wait.over(SILENT_SECONDS - 1, workers)
    assert wait.over(SILENT_SECONDS, workers)


@pytest.mark.parametrize("reason", ["", SAYS_NOT_READY])
def test_a_wrong_discipline_ends_it_at_once(reason: str) -> None:
    workers: Any = fleet("a", "b")
    workers[1].becomes(reason=reason, discipline="fair")
    with pytest.raises(StartRefused, match=r"b runs scheduler\.discipline fair"):
        StartWait(0, None).over(0, workers)


def test_progress_counts_workers_and_models() -> None:
    workers: Any = fleet("a", "b", "c")
    workers[0].becomes("m:READY", "n:READY")
    workers[1].becomes("m:READY", "n:LOADING", reason=SAYS_NOT_READY)
    found = progress(workers)
    assert (found.ready, found.total, found.models_ready, found.models_total) == (1, 3, 3, 4)
    assert found.missing == {"b": SAYS_NOT_READY, "c": "connection refused"}
    assert found.state == "waiting for workers to compile, 1 of 3 ready"
