from __future__ import annotations

import numpy as np
import pytest

from reactant_policy.simulate.trace import Traffic, generate, recorded, shares

MODELS = ("a", "b", "c", "d", "e", "f")


def test_recorded_arrivals_are_put_in_order_and_begin_at_zero() -> None:
    trace = recorded([(1e9 + 2.0, "b", 3), (1e9, "a", 1), (1e9 + 2.0, "a", 2)])
    assert trace.models == ("a", "b")
    assert trace.times.tolist() == [0.0, 2.0, 2.0]
    # Of two at one time the one that came first in the file.
    assert [trace.models[number] for number in trace.which] == ["a", "b", "a"]
    assert trace.items.tolist() == [1, 3, 2]
    assert trace.seconds == 2.0


def test_generated_traffic_is_poisson() -> None:
    trace = generate(MODELS, Traffic(1000.0, 50.0, items=(2, 5), seed=3))
    gaps = np.diff(trace.times)
    assert len(trace) == pytest.approx(50_000, rel=0.02)
    assert (gaps >= 0).all()
    assert trace.times[-1] < 50.0
    # An exponential distribution's deviation is its mean.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert set(trace.items.tolist()) == {2, 3, 4, 5}


def test_a_burst_is_for_one_model_at_one_time() -> None:
    trace = generate(MODELS, Traffic(400.0, 20.0, items=(1, 4), burst=8, seed=3))
    assert len(trace) == pytest.approx(8_000, rel=0.1)
    times, which, items = (values.reshape(-1, 8) for values in (trace.times, trace.which, trace.items))
    assert (times == times[:, :1]).all()
    assert (which == which[:, :1]).all()
    assert len(set(times[:, 0])) == len(times)
    assert not (items == items[:, :1]).all()


def test_models_are_asked_for_by_the_law_of_zipf() -> None:
    trace = generate(MODELS, Traffic(1000.0, 50.0, zipf=1.0, seed=3))
    counts = np.bincount(trace.which, minlength=6) / len(trace)
    assert counts == pytest.approx(shares(6, 1.0, 3), abs=0.01)
    assert sorted(counts, reverse=True) == pytest.approx(
        1 / np.arange(1, 7) / (1 / np.arange(1, 7)).sum(), abs=0.01
    )
    even = generate(MODELS, Traffic(1000.0, 50.0, zipf=0.0, seed=3))
    assert np.bincount(even.which) / len(even) == pytest.approx(1 / 6, abs=0.01)


def test_another_model_is_the_hottest_after_each_shift() -> None:
    trace = generate(MODELS, Traffic(1000.0, 40.0, zipf=1.5, shifts=(10.0, 20.0, 30.0), seed=5))
    hottest = []
    for begin in (0, 10, 20, 30):
        mine = (trace.times >= begin) & (trace.times < begin + 10)
        hottest.append(int(np.bincount(trace.which[mine]).argmax()))
    assert len(set(hottest)) == 4


def test_the_same_seed_gives_the_same_trace() -> None:
    one, same, other = (generate(MODELS, Traffic(100.0, 5.0, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.times, same.times)
    assert np.array_equal(one.which, same.which)
    assert not np.array_equal(one.times, other.times)


def test_every_fault_of_traffic_is_told_at_once() -> None:
    with pytest.raises(
        ValueError,
        match=r"requests_per_second is 0.*seconds is -1.*zipf is nan.*items are 2 to 1.*burst is 0",
    ):
        Traffic(0.0, -1.0, zipf=float("nan"), items=(2, 1), burst=0)
