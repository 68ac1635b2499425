from __future__ import annotations

import pytest

from reactant_policy.simulate.catalogue import SimulatedModel, generated_catalogue, sizes_up_to
from reactant_policy.simulate.fleet import Fleet, by_name


def test_an_execution_costs_its_fixed_part_and_every_row() -> None:
    model = SimulatedModel("m", 0.010, 0.001, (1, 8))
    assert model.seconds(8) == pytest.approx(0.018)
    assert model.max_batch_size == 8


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        ((-0.1, 0.0), "two numbers of at least 0, one of them over 0"),
        ((0.0, 0.0), "one of them over 0"),
        ((float("nan"), 0.0), "one of them over 0"),
        ((0.1, 0.0, ()), "ascending whole numbers over 0"),
        ((0.1, 0.0, (4, 2)), "ascending whole numbers over 0"),
        ((0.1, 0.0, (0, 2)), "ascending whole numbers over 0"),
        ((0.1, 0.0, (1,), -1), "0 or more"),
    ],
)
def test_what_no_model_can_be_is_refused_by_its_name(arguments: tuple[object, ...], accepted: str) -> None:
    with pytest.raises(ValueError, match=f"model 'm': .*{accepted}"):
        SimulatedModel("m", *arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("largest", "sizes"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_sizes_are_powers_of_two_and_the_largest(largest: int, sizes: tuple[int, ...]) -> None:
    assert sizes_up_to(largest) == sizes


def test_a_generated_catalogue_follows_from_its_seed() -> None:
    assert generated_catalogue(20, 7) == generated_catalogue(20, 7)
    assert generated_catalogue(20, 7) != generated_catalogue(20, 8)
    names = [model.name for model in generated_catalogue(101, 0)]
    assert names == sorted(names)


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'m' is there twice"):
        by_name([SimulatedModel("m", 1.0, 0.0)] * 2)


def test_every_fault_of_a_fleet_is_told_at_once() -> None:
    models = by_name([SimulatedModel("m", 1.0, 0.0)])
    with pytest.raises(ValueError, match=r"overhead_seconds is -1.*; probe_seconds is 0"):
        Fleet(("a",), models, overhead_seconds=-1.0, probe_seconds=0.0)
    with pytest.raises(ValueError, match="sorted"):
        Fleet(("b", "a"), models)
