from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy.tests.placement.catalogue import STEADY, over, worst

from reactant_policy.placement.engine import plan
from reactant_policy.placement.model import Homes, Knobs, ModelDemand, WorkerRoom

KNOBS = Knobs()


def placed(models: list[ModelDemand], workers: list[WorkerRoom], previous: Homes | None = None) -> Homes:
    made = plan(models, workers, previous or {}, KNOBS)
    assert made.warnings == ()
    assert over(models, workers, made.homes) == 0
    return made.homes


def test_a_model_that_fits_on_one_worker_only_gets_it() -> None:
    """Hotter models would fill the large worker first, which has the lower pressure for them."""
    workers = [WorkerRoom("a", 24), WorkerRoom("b", 24), WorkerRoom("large", 80)]
    names = ("a", "b", "large")
    hot = [ModelDemand(f"hot{n}", 0.5, 20, names) for n in range(4)]
    homes = placed([*hot, ModelDemand("big", 0.01, 40, names)], workers)
    assert homes["big"] == ("large",)


def test_a_model_that_may_go_to_one_worker_only_gets_it() -> None:
    workers = [WorkerRoom(name, 10) for name in "abc"]
    hot = [ModelDemand(f"hot{n}", 0.9, 6, ("a", "b", "c")) for n in range(2)]
    assert placed([*hot, ModelDemand("picky", 0.1, 6, ("a",))], workers)["picky"] == ("a",)


@pytest.mark.parametrize("others", [0, 70])
def test_a_chain_of_models_makes_room(others: int) -> None:
    """Each fits on its own worker and the next one's: the last to come needs all the others to move.

    With many others the exhaustive search is of no help.
    """
    names = "abcdef"
    workers = [WorkerRoom(name, 10) for name in names]
    models = [ModelDemand(f"m{n}", 0.9 - 0.1 * n, 8, tuple(names[n : n + 2])) for n in range(5)]
    models += [ModelDemand(f"other{n}", 0.001, 0, tuple(names)) for n in range(others)]
    models.append(ModelDemand("last", 0.0, 7, ("a", "tiny")))
    homes = placed(models, [*workers, WorkerRoom("tiny", 1)])
    assert homes["last"] == ("a",)
    assert homes["m0"] == ("b",)


@pytest.mark.parametrize("sizes", [[3, 3, 2, 2, 2], [5, 5, 4, 4, 3, 3], [7, 6, 5, 3, 2, 1]])
def test_bytes_that_fill_every_budget_to_the_last(sizes: list[int]) -> None:
    """Worst fit falling strands one of these."""
    workers = [WorkerRoom("a", sum(sizes) // 2), WorkerRoom("b", sum(sizes) // 2)]
    placed([ModelDemand(f"m{n}", 0.01 * n, size, ("a", "b")) for n, size in enumerate(sizes)], workers)


@pytest.mark.parametrize(
    "sizes",
    [
        [35, 25, 5, 35, 30, 55, 55, 40, 20],
        [20, 65, 80, 30, 15, 5, 40, 15, 30],
        [55, 35, 40, 60, 35, 30, 5, 20, 20],
    ],
)
def test_what_only_a_search_through_everything_finds(sizes: list[int]) -> None:
    workers = [WorkerRoom(name, 100) for name in "abc"]
    placed([ModelDemand(f"m{n}", 0.1, size, ("a", "b", "c")) for n, size in enumerate(sizes)], workers)


@pytest.mark.slow
@settings(STEADY, max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 4))
def test_any_catalogue_cut_from_the_budgets_fits(seed: int, workers: int, pieces: int) -> None:
    """Budgets cut into models without any waste: there is a way, by construction."""
    rng = random.Random(seed)
    rooms = [WorkerRoom(f"w{number}", 100) for number in range(workers)]
    names = tuple(room.name for room in rooms)
    sizes = []
    for _ in rooms:
        cuts = sorted(rng.sample(range(10, 100, 5), pieces - 1))
        sizes += [end - start for start, end in zip([0, *cuts], [*cuts, 100], strict=True)]
    rng.shuffle(sizes)
    placed([ModelDemand(f"m{n}", rng.random(), size, names) for n, size in enumerate(sizes)], rooms)


def test_room_is_made_for_a_new_model_and_only_as_much_as_it_takes() -> None:
    workers = [WorkerRoom(name, 10) for name in "abcd"]
    names = ("a", "b", "c", "d")
    models = [ModelDemand(f"m{n}", 0.1, 3, names) for n in range(8)]
    before = placed(models, workers)
    made = plan([*models, ModelDemand("big", 0.1, 6, names)], workers, before, KNOBS)
    assert over([*models, ModelDemand("big", 0.1, 6, names)], workers, made.homes) == 0
    assert len(made.moves) == 1
    assert made.moves[0].reason == "balance"


def test_a_model_too_large_for_all_leaves_the_others_where_they_fit() -> None:
    workers = [WorkerRoom("a", 10), WorkerRoom("b", 10)]
    models = [ModelDemand("giant", 0.1, 50, ("a", "b"))]
    models += [ModelDemand(f"m{n}", 0.1, 5, ("a", "b")) for n in range(2)]
    made = plan(models, workers, {}, KNOBS)
    assert len(made.warnings) == 1
    assert made.homes["m0"] == made.homes["m1"] != made.homes["giant"]


def test_without_the_rule_pressure_alone_decides() -> None:
    workers = [WorkerRoom("a", 10), WorkerRoom("b", 10)]
    models = [
        ModelDemand("hot", 3.0, 9, ("a", "b")),
        ModelDemand("warm", 2.0, 2, ("a", "b")),
        ModelDemand("big", 0.1, 9, ("a", "b")),
    ]
    free = plan(models, workers, {}, Knobs(forbid_memory_oversubscription=False))
    assert over(models, workers, free.homes) == 1
    assert worst(free) == pytest.approx(3.0)
    strict = plan([*models[:2], ModelDemand("big", 0.1, 8, ("a", "b"))], workers, {}, KNOBS)
    assert not strict.warnings
