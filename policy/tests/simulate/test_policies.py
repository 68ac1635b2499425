from __future__ import annotations

import pytest

from reactant_policy.simulate.policies import policy


def test_a_policy_is_a_mode_a_discipline_and_settings() -> None:
    text = "lpt_packing+edf,replicas=all,fill_mode=spread,fill_factor=2,coalesce=off,hysteresis=0"
    chosen = policy(text)
    assert (chosen.label, chosen.mode, chosen.discipline) == (text, "lpt_packing", "edf")
    assert (chosen.replicas, chosen.fill_mode, chosen.fill_factor) == (None, "spread", 2.0)
    assert (chosen.coalesce, chosen.hysteresis) == (False, 0.0)
    assert policy("round_robin").discipline == "fifo"


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("robin", "mode is 'robin'; accepted is round_robin, least_outstanding, lpt_packing"),
        ("round_robin+lifo", "discipline is 'lifo'; accepted is fair, fifo, edf"),
        ("lpt_packing+fair", "is 'fair'; accepted is fifo, edf"),
        ("round_robin,colour=red", "key is 'colour'; accepted is work_basis"),
        ("round_robin,work_basis", "work_basis is ''; accepted is requests or items or compute"),
        ("lpt_packing,replicas=0", "replicas is '0'; accepted is all or a count of at least 1"),
        ("lpt_packing,fill_factor=nan", "fill_factor is 'nan'; accepted is a number over 0"),
        ("lpt_packing,hysteresis=-1", "hysteresis is '-1'; accepted is a number of at least 0"),
        ("lpt_packing,rebalance_compute_seconds=inf", "accepted is a number over 0"),
    ],
)
def test_what_is_not_accepted_is_named_with_what_is(text: str, accepted: str) -> None:
    with pytest.raises(ValueError, match=r"policy '.*': ") as fault:
        policy(text)
    assert accepted in str(fault.value)
