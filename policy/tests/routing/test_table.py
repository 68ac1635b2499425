from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_policy.routing.table import (
    EMPTY_TABLE,
    ModelView,
    Route,
    WorkerView,
    build_table,
    with_worker,
)


def _worker(name: str, *models: ModelView, available: bool = True) -> WorkerView:
    return WorkerView(name, available, {model.name: model for model in models})


def _batched(name: str, state: str = "READY", seconds: float | None = None, axis: int = 0) -> ModelView:
    return ModelView(name, state, "", True, "x", axis, 8, seconds)


def test_candidates_are_available_workers_with_the_model_ready() -> None:
    table = build_table(
        [
            _worker("c", _batched("m")),
            _worker("a", _batched("m")),
            _worker("b", _batched("m", "LOADING")),
            _worker("d", _batched("m"), available=False),
        ]
    )
    assert table.routes == {"m": Route("m", ("a", "c"), True, "x", 0, None, 8)}
    assert list(table.workers) == ["a", "b", "c", "d"]


def test_a_model_nobody_can_take_is_a_route_without_candidates() -> None:
    table = build_table(
        [_worker("a", _batched("m", "LOADING")), _worker("b", _batched("n"), available=False)]
    )
    assert table.routes["m"].candidates == ()
    assert table.routes["n"].candidates == ()
    assert table.routes["n"].idempotent
    assert "other" not in table.routes


def test_only_unanimous_candidates_make_a_model_idempotent() -> None:
    plain = ModelView("m", "READY")
    assert not build_table([_worker("a", _batched("m")), _worker("b", plain)]).routes["m"].idempotent
    away = _worker("b", plain, available=False)
    assert build_table([_worker("a", _batched("m")), away]).routes["m"].idempotent


def test_workers_that_disagree_about_the_batch_make_a_request_one_item() -> None:
    route = build_table([_worker("a", _batched("m")), _worker("b", _batched("m", axis=1))]).routes["m"]
    assert (route.batch_input, route.batch_axis, route.max_batch_size) == (None, 0, 0)
    # One that knows no batch axis, such as another KServe server, does not take it from the others.
    route = build_table([_worker("a", _batched("m", axis=1)), _worker("b", ModelView("m", "READY"))]).routes[
        "m"
    ]
    assert (route.batch_input, route.batch_axis, route.max_batch_size) == ("x", 1, 8)


def test_cost_is_the_mean_of_the_workers_that_measured_it() -> None:
    table = build_table(
        [
            _worker("a", _batched("m", seconds=0.1), _batched("n")),
            _worker("b", _batched("m", seconds=0.3), _batched("o", seconds=0.6)),
            _worker("c", _batched("m")),
        ]
    )
    assert table.routes["m"].seconds_per_item == 0.2
    assert table.routes["n"].seconds_per_item is None
    assert table.mean_seconds == 0.4
    assert EMPTY_TABLE.mean_seconds == 0.0


def test_weights_are_the_most_that_a_worker_reports_and_pinned_where_it_can_serve() -> None:
    views = [
        _worker(name, ModelView("m", state, weight_bytes=size, pinned=True), available=available)
        for name, state, size, available in (
            ("a", "READY", 10, True),
            ("b", "LOADING", 30, True),
            ("c", "READY", 20, False),
        )
    ]
    route = build_table([*views, _worker("d", ModelView("m", "READY"))]).routes["m"]
    assert (route.weight_bytes, route.pinned, route.candidates) == (30, ("a",), ("a", "d"))
    # What matters to nobody's requests is in force all the same.
    table = build_table(views)
    fair = replace(views[0], discipline="fair", weight_budget_bytes=7)
    assert with_worker(table, fair).workers["a"] == fair


def test_a_worker_that_goes_takes_all_its_models_with_it_and_brings_them_back() -> None:
    here, gone = _worker("a", _batched("m")), _worker("a", _batched("m"), available=False)
    table = build_table([here, _worker("b", _batched("m"))])
    without = with_worker(table, gone)
    assert without.routes["m"].candidates == ("b",)
    assert with_worker(without, here) == table
    assert with_worker(table, _worker("b")).routes["m"].candidates == ("a",)
    assert "m" not in with_worker(build_table([here]), _worker("a")).routes


MODELS = st.builds(
    ModelView,
    st.sampled_from("mno"),
    st.sampled_from(["READY", "LOADING"]),
    idempotent=st.booleans(),
    batch_input=st.sampled_from([None, "x"]),
    max_batch_size=st.sampled_from([0, 8]),
    seconds_per_item=st.sampled_from([None, 0.5, 2.0]),
    weight_bytes=st.sampled_from([0, 1000]),
    pinned=st.booleans(),
)
VIEWS = st.builds(
    lambda name, available, models: _worker(name, *models, available=available),
    st.sampled_from("abc"),
    st.booleans(),
    st.lists(MODELS, max_size=3),
)


@settings(max_examples=50)
@given(st.lists(VIEWS, max_size=12))
def test_a_table_changed_worker_by_worker_is_the_table_built_at_once(views: list[WorkerView]) -> None:
    table = EMPTY_TABLE
    for view in views:
        before = dict(table.routes), dict(table.workers)
        changed = with_worker(table, view)
        assert (dict(table.routes), dict(table.workers)) == before
        table = changed
    assert table == build_table(views)
    assert list(table.workers) == sorted(table.workers)
