from __future__ import annotations

from collections.abc import Mapping

import pytest

from reactant_policy.scheduling.cost import CostTable
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler


def test_cost_follows_the_moving_average_and_scales_unmeasured_sizes() -> None:
    table = CostTable(alpha=0.2)
    assert table.measured("m", None, 8) is None
    assert table.least("m") == 0.0
    unknown = table.costs("m", None, (8, 16))
    assert unknown.seconds == {8: 0.0, 16: 0.0}
    assert unknown.compared == {8: 8.0, 16: 16.0}
    table.observe("m", None, 8, 1.0)
    table.observe("m", None, 8, 2.0)
    assert table.measured("m", None, 8) == pytest.approx(1.2)
    assert table.least("m") == pytest.approx(1.2)
    known = table.costs("m", None, (8, 16))
    assert known.seconds == pytest.approx({8: 1.2, 16: 2.4})
    assert known.compared == pytest.approx({8: 1.2, 16: 2.4})
    assert table.costs("m", 1, (16,)).compared == {16: 16.0}  # another variant is another program
    table.forget("m")
    assert table.costs("m", None, (16,)).compared == {16: 16.0}
    with pytest.raises(ValueError, match="alpha must be in"):
        CostTable(0)


def test_what_is_not_run_fades_only_where_sizes_are_compared() -> None:
    table = CostTable()
    table.observe("m", None, 8, 1.0)
    for _ in range(1000):
        table.observe("m", None, 32, 3.0)
    costs = table.costs("m", None, (8, 32))
    assert costs.compared == pytest.approx({8: 0.5, 32: 3.0})
    assert costs.seconds == pytest.approx({8: 1.0, 32: 3.0})


def test_one_hiccup_does_not_condemn_a_size() -> None:
    scheduler = Scheduler(make_discipline("fifo"))
    scheduler.add_model("m", ModelTerms((8, 32), coalesces=True, max_batch_size=32))
    seconds = {8: 0.004, 32: 0.006}
    for size, cost in seconds.items():
        scheduler.seed("m", None, size, cost)
    for _ in range(3):
        scheduler.seed("m", None, 32, 0.1)
    sizes = []
    for number in range(3000):
        for ticket in range(32):
            scheduler.enqueue("m", Waiting(number * 32 + ticket, 1, None, 0.0))
        while (dispatch := scheduler.next(0.0).dispatch) is not None:
            sizes.append(dispatch.size)
            scheduler.observe("m", None, dispatch.size, seconds[dispatch.size], 0.0)
    assert set(sizes[-100:]) == {32}


def run(scheduler: Scheduler, seconds: Mapping[int, float], bursts: int) -> list[int]:
    """The sizes that bursts of eight rows, one after the other, are run at."""
    sizes = []
    for number in range(bursts):
        for ticket in range(8):
            scheduler.enqueue("m", Waiting(number * 8 + ticket, 1, None, 0.0))
        while (dispatch := scheduler.next(0.0).dispatch) is not None:
            sizes.append(dispatch.size)
            scheduler.observe("m", None, dispatch.size, seconds[dispatch.size], 0.0)
    return sizes


def scheduler_of(first: Mapping[int, float]) -> Scheduler:
    """With a model of these sizes, each of which was run once."""
    scheduler = Scheduler(make_discipline("fifo"))
    scheduler.add_model("m", ModelTerms(tuple(first), coalesces=True, max_batch_size=8))
    for size, cost in first.items():
        scheduler.seed("m", None, size, cost)
    return scheduler


@pytest.mark.parametrize("wrong", [1, 2, 3, 8])
@pytest.mark.parametrize("times", [3, 10, 100])
def test_a_first_run_that_was_disturbed_counts_no_further_than_the_next(wrong: int, times: int) -> None:
    """As on a machine that compiles other models meanwhile."""
    seconds = {1: 0.010, 2: 0.011, 3: 0.012, 8: 0.019}
    scheduler = scheduler_of({**seconds, wrong: times * seconds[wrong]})
    assert set(run(scheduler, seconds, 5)[-4:]) == {8}
    scheduler.enqueue("m", Waiting(10_000, 1, None, 0.0))
    dispatch = scheduler.next(0.0).dispatch
    assert dispatch is not None
    assert dispatch.size == 1


def test_a_size_that_really_takes_more_than_its_share_is_left_when_that_is_sure() -> None:
    sizes = run(scheduler_of({2: 0.01, 8: 0.1}), {2: 0.01, 8: 0.1}, 20)
    assert sizes[:3] == [8, 8, 8]
    assert set(sizes[3:]) == {2}


def test_a_size_that_has_become_dear_is_left() -> None:
    scheduler = Scheduler(make_discipline("fifo"))
    scheduler.add_model("m", ModelTerms((8, 32), coalesces=True, max_batch_size=32))
    scheduler.seed("m", None, 8, 0.01)
    scheduler.seed("m", None, 32, 0.02)
    sizes = []
    for number in range(20):
        for ticket in range(32):
            scheduler.enqueue("m", Waiting(number * 32 + ticket, 1, None, 0.0))
        dispatch = scheduler.next(0.0).dispatch
        assert dispatch is not None
        sizes.append(dispatch.size)
        scheduler.observe("m", None, dispatch.size, {8: 0.01, 32: 0.2}[dispatch.size], 0.0)
    assert sizes[0] == 32
    assert sizes[-1] == 8
