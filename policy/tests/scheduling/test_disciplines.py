from __future__ import annotations

import pytest

from reactant_policy.scheduling.discipline import Candidate
from reactant_policy.scheduling.disciplines import DISCIPLINE_NAMES, make_discipline


def test_every_name_has_a_discipline_of_its_own() -> None:
    for name in DISCIPLINE_NAMES:
        assert make_discipline(name) is not make_discipline(name)
    with pytest.raises(ValueError, match="unknown discipline 'lifo'; accepted is fair, fifo, edf"):
        make_discipline("lifo")


def test_only_edf_gives_up_what_cannot_finish() -> None:
    assert {name for name in DISCIPLINE_NAMES if make_discipline(name).sheds} == {"edf"}


def test_fifo_takes_the_oldest_head_and_breaks_ties_by_name() -> None:
    fifo = make_discipline("fifo")
    assert fifo.pick([Candidate("b", arrived=1.0), Candidate("a", arrived=2.0)]).model == "b"
    assert fifo.pick([Candidate("b", arrived=1.0), Candidate("a", arrived=1.0)]).model == "a"


def test_edf_takes_the_soonest_deadline_then_the_oldest_head_then_the_name() -> None:
    edf = make_discipline("edf")
    urgent = Candidate("z", arrived=9.0, deadline=10.0)
    assert edf.pick([Candidate("a", arrived=1.0), urgent]).model == "z"
    assert edf.pick([Candidate("a", arrived=1.0, deadline=11.0), urgent]).model == "z"
    assert edf.pick([Candidate("b", arrived=1.0, deadline=10.0), urgent]).model == "b"
    assert edf.pick([urgent, Candidate("y", arrived=9.0, deadline=10.0)]).model == "y"
