from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy.tests.placement.catalogue import STEADY, all_homes, fleets, loads, over, previous_homes, worst

from reactant_policy.placement.engine import lower_bound, plan
from reactant_policy.placement.model import Knobs, ModelDemand, WorkerRoom

KNOBS = Knobs()
ABCD = ("a", "b", "c", "d")
Fleet = tuple[list[ModelDemand], list[WorkerRoom]]


def rooms(*names: str, budget: int = 0) -> list[WorkerRoom]:
    return [WorkerRoom(name, budget) for name in names]


def models(*compute: float, size: int = 1, eligible: tuple[str, ...] = ABCD) -> list[ModelDemand]:
    return [ModelDemand(f"m{number}", value, size, eligible) for number, value in enumerate(compute)]


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_every_model_has_as_many_homes_as_can_be_and_only_allowed_ones(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets())
    previous = data.draw(previous_homes(catalogue))
    made = plan(catalogue, workers, previous, Knobs(forbid_memory_oversubscription=data.draw(st.booleans())))
    names = {room.name for room in workers}
    for model in catalogue:
        homes = made.homes.get(model.name, ())
        wanted = len(model.eligible) if model.replicas is None else model.replicas
        assert list(homes) == sorted(set(homes))
        assert set(homes) <= set(model.eligible) & names
        assert len(homes) == min(wanted, len(model.eligible))
        assert len(set(homes) & set(model.pinned)) == min(len(homes), len(model.pinned))
        # Said, and once.
        said = [line for line in made.warnings if line.startswith(f"{model.name}:")]
        assert len(said) == (not model.eligible or wanted > len(model.eligible))
    assert made.placed == len(made.homes) == sum(bool(model.eligible) for model in catalogue)
    assert {home for homes in made.homes.values() for home in homes} <= names


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_what_a_plan_says_of_itself_is_so(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets())
    previous = data.draw(previous_homes(catalogue))
    made = plan(catalogue, workers, previous, KNOBS)
    compute = loads(catalogue, workers, made.homes)
    assert {name: p.compute for name, p in made.pressure.items()} == pytest.approx(compute)
    for room in workers:
        held = sum(m.weight_bytes for m in catalogue if room.name in made.homes.get(m.name, ()))
        memory = held / room.weight_budget_bytes if room.weight_budget_bytes else 0.0
        assert made.pressure[room.name].memory == pytest.approx(memory)
        assert any(line.startswith(f"{room.name}:") for line in made.warnings) == (memory > 1.0)
        weights = [weight for (_, worker), weight in made.weights.items() if worker == room.name]
        assert sum(weights) == pytest.approx(1.0 if compute[room.name] else 0.0)
    assert {(m, w) for m, homes in made.homes.items() for w in homes} == set(made.weights)
    before = {m.name: set(previous.get(m.name, ())) for m in catalogue}
    moved = {m.model: (set(m.gone), set(m.new)) for m in made.moves}
    after = {m.name: set(made.homes.get(m.name, ())) for m in catalogue}
    assert moved == {
        name: (was - after[name], after[name] - was)
        for name, was in before.items()
        if was and was != after[name]
    }
    sizes = {m.name: m.weight_bytes for m in catalogue}
    assert [m.bytes for m in made.moves] == [sizes[m.model] * len(m.new) for m in made.moves]
    assert made.bytes_moved == sum(m.bytes for m in made.moves)
    total = sum(compute.values())
    assert made.imbalance_after == pytest.approx(max(compute.values()) * len(compute) / total if total else 0)
    assert made.held + len(made.moves) <= len(catalogue)


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_the_order_of_the_input_is_nothing_to_it(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets())
    previous = data.draw(previous_homes(catalogue))
    shuffled = random.Random(1)
    other = (
        shuffled.sample(catalogue, len(catalogue)),
        shuffled.sample(workers, len(workers)),
        dict(shuffled.sample(sorted(previous.items()), len(previous))),
    )
    made = plan(catalogue, workers, previous, KNOBS)
    assert plan(*other, KNOBS) == made
    assert list(plan(*other, KNOBS).homes) == list(made.homes)


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_once_more_with_the_same_demand_moves_nothing(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets(models=10))
    previous = data.draw(previous_homes(catalogue))
    knobs = Knobs(forbid_memory_oversubscription=data.draw(st.booleans()))
    made = plan(catalogue, workers, previous, knobs)
    again = plan(catalogue, workers, made.homes, knobs)
    assert again.homes == made.homes
    assert not again.moves
    assert again.best_gain <= knobs.hysteresis


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_no_placement_is_below_the_bound(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets(models=4, workers=3))
    made = plan(catalogue, workers, {}, KNOBS)
    assert lower_bound(catalogue, workers) <= worst(made) * (1 + 1e-12)


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_what_fits_is_not_stranded(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets(models=5, workers=3, bounded=True))
    previous = data.draw(previous_homes(catalogue))
    made = plan(catalogue, workers, previous, KNOBS)
    if over(catalogue, workers, made.homes):
        assert all(over(catalogue, workers, homes) for homes in all_homes(catalogue, workers))


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_a_repack_never_raises_the_worst_pressure_of_what_could_have_stayed(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets())
    first = plan(catalogue, workers, {}, KNOBS)
    factors = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0]), min_size=10, max_size=10))
    shifted = [replace(m, compute=m.compute * factor) for m, factor in zip(catalogue, factors, strict=False)]
    made = plan(shifted, workers, first.homes, KNOBS)
    memory = {name: p.memory for name, p in first.pressure.items()}
    stayed = max(max(share, memory[name]) for name, share in loads(shifted, workers, first.homes).items())
    assert worst(made) <= max(stayed * (1 + 1e-9), 1.005 * lower_bound(shifted, workers))


def test_heavy_models_go_apart_and_compute_ends_even() -> None:
    made = plan(models(0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1), rooms("a", "b", "c", "d"), {}, KNOBS)
    assert max(p.compute for p in made.pressure.values()) == pytest.approx(0.4)
    assert made.imbalance_after == pytest.approx(1.0)


def test_replicas_share_the_compute_and_each_holds_all_the_bytes() -> None:
    model = ModelDemand("m", 0.9, 5, ABCD, replicas=3)
    made = plan([model], rooms(*ABCD, budget=10), {}, KNOBS)
    assert made.homes["m"] == ("a", "b", "c")
    assert [(round(p.compute, 9), p.memory) for p in made.pressure.values()] == [(0.3, 0.5)] * 3 + [
        (0.0, 0.0)
    ]


def test_more_replicas_than_workers_get_all_of_them_and_a_warning() -> None:
    made = plan([ModelDemand("m", 0.9, 5, ("a", "b"), replicas=9)], rooms(*ABCD), {}, KNOBS)
    assert made.homes == {"m": ("a", "b")}
    assert made.warnings == ("m: 9 replicas are wanted, 2 workers can take it",)


def test_all_replicas_follow_the_fleet() -> None:
    model = ModelDemand("m", 0.9, 5, ABCD, replicas=None)
    before = plan([model], rooms("a", "b"), {}, KNOBS).homes
    assert before == {"m": ("a", "b")}
    after = plan([model], rooms(*ABCD), before, KNOBS)
    assert after.homes == {"m": ABCD}
    assert [move.reason for move in after.moves] == ["replicas"]


def test_a_model_that_no_worker_has_is_said_and_the_others_are_placed() -> None:
    lost = ModelDemand("lost", 1.0, 1, ())
    made = plan([*models(0.1), lost], rooms(*ABCD), {"lost": ("a",)}, KNOBS)
    assert set(made.homes) == {"m0"}
    assert made.warnings == ("lost: no worker can take it",)
    assert [(move.model, move.gone, move.reason) for move in made.moves] == [("lost", ("a",), "lost")]


def test_no_workers_and_no_models() -> None:
    assert plan([], [], {}, KNOBS).homes == {}
    assert plan(models(0.5), [], {"m0": ("a",)}, KNOBS).homes == {}
    assert plan([], rooms(*ABCD), {"m0": ("a",)}, KNOBS).homes == {}
    assert lower_bound([], []) == lower_bound(models(1.0), []) == 0.0


def test_thousands_of_warnings_are_ten_and_a_count() -> None:
    made = plan(models(*[0.1] * 1000, eligible=()), rooms("a"), {}, KNOBS)
    assert len(made.warnings) == 11
    assert made.warnings[-1] == "990 more models that no worker can take"


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two models are named m0"):
        plan([*models(0.1), *models(0.2)], rooms("a"), {}, KNOBS)
    with pytest.raises(ValueError, match="two workers are named a"):
        plan(models(0.1), rooms("a", "a"), {}, KNOBS)


@pytest.mark.parametrize("budget", [0, 100])
def test_models_without_demand_are_spread_by_memory_then_by_number(budget: int) -> None:
    sizes = [8, 4, 4, 2, 2, 2, 1, 1]
    idle = [ModelDemand(f"m{number}", 0.0, size, ABCD) for number, size in enumerate(sizes)]
    busy = ModelDemand("busy", 0.9, 0, ABCD)
    homes = plan([*idle, busy], rooms(*ABCD, budget=budget), {}, KNOBS).homes
    held = [sum(m.weight_bytes for m in idle if home in homes[m.name]) for home in ABCD]
    assert sorted(held) == [4, 6, 6, 8] or max(held) == 8
    weightless = models(*[0.0] * 8, size=0)
    homes = plan([*weightless, busy], rooms(*ABCD, budget=budget), {}, KNOBS).homes
    assert sorted(sum(home in where for where in homes.values()) for home in ABCD) == [2, 2, 2, 3]


@pytest.mark.slow
@settings(STEADY)
@given(st.data())
def test_without_any_demand_the_placement_stays(data: st.DataObject) -> None:
    catalogue, workers = data.draw(fleets(bounded=False))
    first = plan(catalogue, workers, {}, Knobs(forbid_memory_oversubscription=False))
    silent = [replace(model, compute=0.0) for model in catalogue]
    used = {home for homes in first.homes.values() for home in homes}
    workers = [room for room in workers if room.name in used]
    made = plan(silent, workers, first.homes, Knobs(forbid_memory_oversubscription=False))
    assert made.homes == first.homes


def test_without_any_demand_a_worker_that_joins_empty_gets_its_part() -> None:
    silent = models(*[0.0] * 9)
    before = plan(silent, rooms("a", "b"), {}, KNOBS).homes
    made = plan(silent, rooms("a", "b", "c"), before, KNOBS)
    assert sorted(sum(w in homes for homes in made.homes.values()) for w in "abc") == [3, 3, 3]
    assert len(made.moves) == 3
    assert plan(silent, rooms("a", "b", "c"), made.homes, KNOBS).homes == made.homes


def test_one_model_with_all_the_traffic_stays_where_it_is() -> None:
    catalogue = models(0.9, *[0.0] * 7)
    before = plan(models(*[0.0] * 8), rooms(*ABCD), {}, KNOBS).homes
    made = plan(catalogue, rooms(*ABCD), before, KNOBS)
    assert made.homes == before
    assert made.imbalance_after == pytest.approx(4.0)


@pytest.mark.parametrize(("heavier", "moves"), [(0.52, 0), (0.9, 1)])
def test_a_home_is_kept_unless_the_gain_exceeds_the_hysteresis(heavier: float, moves: int) -> None:
    catalogue = models(0.5, heavier - 0.5, 0.5, 0.0)
    before = {"m0": ("a",), "m1": ("a",), "m2": ("b",), "m3": ("b",)}
    made = plan(catalogue, rooms("a", "b", "c")[: 2 + moves], before, KNOBS)
    assert len(made.moves) == moves
    assert (made.best_gain > 0.1) == bool(moves)


def test_what_is_within_the_hysteresis_is_counted_as_held() -> None:
    catalogue = models(0.30, 0.22, 0.20, 0.24)
    before = {"m0": ("a",), "m1": ("a",), "m2": ("b",), "m3": ("b",)}
    kept = plan(catalogue, rooms("a", "b"), before, Knobs(hysteresis=0.2))
    assert kept.homes == before
    lively = plan(catalogue, rooms("a", "b"), before, Knobs(hysteresis=0.0))
    assert lively.imbalance_after < kept.imbalance_after


@pytest.mark.parametrize("fleet", [2, 4, 12, 40])
def test_a_worker_that_joins_empty_is_used_and_no_more_is_moved_than_it_takes(fleet: int) -> None:
    names = tuple(f"w{number:02}" for number in range(fleet + 1))
    catalogue = [ModelDemand(f"m{n:03}", 0.01 + 0.0001 * (n % 7), 10, names) for n in range(20 * fleet)]
    before = plan(catalogue, rooms(*names[:-1], budget=1000), {}, KNOBS)
    made = plan(catalogue, rooms(*names, budget=1000), before.homes, KNOBS)
    share = made.pressure[names[-1]].compute * (fleet + 1) / sum(model.compute for model in catalogue)
    assert share > 0.85
    assert len(made.moves) <= 20 * fleet / (fleet + 1) + 1
    assert all(move.new == (names[-1],) and move.reason == "balance" for move in made.moves)


@pytest.mark.parametrize("fleet", [3, 12])
def test_a_worker_that_leaves_takes_nobody_elses_models_along(fleet: int) -> None:
    names = tuple(f"w{number:02}" for number in range(fleet))
    catalogue = [ModelDemand(f"m{n:03}", 0.01 + 0.0001 * (n % 7), 10, names) for n in range(20 * fleet)]
    before = plan(catalogue, rooms(*names, budget=1000), {}, KNOBS)
    made = plan(catalogue, rooms(*names[1:], budget=1000), before.homes, KNOBS)
    assert {move.model for move in made.moves} == {
        m for m, homes in before.homes.items() if homes == ("w00",)
    }
    assert {move.reason for move in made.moves} == {"lost"}
    assert made.imbalance_after < 1.1


def test_a_worker_that_joins_beside_one_that_cannot_be_relieved_is_used_too() -> None:
    catalogue = models(0.9, *[0.1] * 8)
    before = {"m0": ("a",), **{f"m{n}": ("bc"[n % 2],) for n in range(1, 9)}}
    made = plan(catalogue, rooms(*ABCD), before, KNOBS)
    assert made.pressure["d"].compute == pytest.approx(0.3, abs=0.11)
    assert made.homes["m0"] == ("a",)


def test_compute_is_evened_out_under_the_memory_that_is_short() -> None:
    """Memory shares of 0.8 leave room for any compute in the worst pressure; latency does not."""
    catalogue = [ModelDemand(f"m{n}", 0.1 if n < 4 else 0.001, 20, ABCD) for n in range(16)]
    before = {f"m{n}": (ABCD[n // 4],) for n in range(16)}
    made = plan(catalogue, rooms(*ABCD, budget=100), before, KNOBS)
    assert worst(made) == pytest.approx(0.8)
    assert made.imbalance_after < 1.1
    assert len(made.moves) == 6


def test_bytes_decide_between_moves_that_are_as_good() -> None:
    catalogue = [
        ModelDemand("large", 0.2, 10_000, ("a", "b")),
        ModelDemand("rest", 0.2, 10, ("a", "b")),
        ModelDemand("small", 0.2, 100, ("a", "b")),
    ]
    catalogue += [ModelDemand(f"{m.name}2", 0.0, 0, m.eligible) for m in catalogue]
    before = {m.name: ("a",) for m in catalogue} | {"rest": ("b",)}
    catalogue[1] = replace(catalogue[1], compute=0.0)
    made = plan(catalogue, rooms("a", "b"), before, KNOBS)
    assert [(move.model, move.bytes) for move in made.moves] == [("small", 100)]


def test_bounded_and_unconstrained_workers_side_by_side() -> None:
    workers = [WorkerRoom("a", 10), WorkerRoom("b", 0)]
    made = plan(models(*[0.1] * 8, size=8, eligible=("a", "b")), workers, {}, KNOBS)
    assert made.pressure["a"].memory <= 1.0
    assert made.pressure["b"].memory == 0.0
    assert not made.warnings
    assert lower_bound(models(*[0.1] * 8, size=8), workers) == pytest.approx(0.4)


def test_what_is_too_much_for_all_is_placed_all_the_same_and_said() -> None:
    made = plan(models(*[0.1] * 6, size=5), rooms(*ABCD[:3], budget=8), {}, KNOBS)
    assert made.placed == 6
    assert made.warnings == tuple(f"{w}: its models have 10 bytes, its budget is 8" for w in "abc")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"compute": float("nan")}, "m: compute must be a number of at least 0, not nan"),
        ({"compute": -1.0}, "m: compute must be"),
        ({"weight_bytes": -1}, "m: weight_bytes must be at least 0, not -1"),
        ({"replicas": 0}, "m: replicas must be at least 1 or None, not 0"),
    ],
)
def test_a_model_with_numbers_that_cannot_be_is_refused(fields: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ModelDemand(**{"name": "m", "compute": 0.0, "weight_bytes": 0, "eligible": (), **fields})  # type: ignore[arg-type]


def test_a_budget_and_a_hysteresis_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="w: weight_budget_bytes must be at least 0, not -1"):
        WorkerRoom("w", -1)
    for hysteresis in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="hysteresis must be in"):
            Knobs(hysteresis)
