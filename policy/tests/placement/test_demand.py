from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy.tests.placement.catalogue import STEADY

from reactant_policy.placement.demand import DemandMeter
from reactant_policy.routing.work import UNMEASURED_SECONDS, Totals


class Fleet:
    """Workers that serve what arrives at once, and the counters they show; it reads them every second."""

    def __init__(self, halflife: float = 300.0, workers: int = 2) -> None:
        self.meter = DemandMeter(halflife)
        self.now = 0.0
        self.arrivals: dict[str, int] = {}
        self.totals: dict[str, dict[str, Totals]] = {f"w{number}": {} for number in range(workers)}
        self.observe()

    def observe(self) -> None:
        self.meter.observe(self.now, self.arrivals, {name: dict(t) for name, t in self.totals.items()})

    def run(self, seconds: int, rates: dict[str, tuple[int, float]]) -> None:
        """Items per second and device time of each, by model, spread over the workers."""
        for _ in range(seconds):
            self.now += 1.0
            for model, (items, cost) in rates.items():
                self.arrivals[model] = self.arrivals.get(model, 0) + items
                for totals in self.totals.values():
                    before = totals.get(model, Totals(0.0, 0))
                    share = items / len(self.totals)
                    totals[model] = Totals(before.compute_seconds + share * cost, before.rows + int(share))
            self.observe()

    def demand(self, model: str) -> float:
        return self.meter.demand()[model]


def test_demand_is_rate_times_cost() -> None:
    fleet = Fleet()
    fleet.run(100, {"m": (10, 0.05), "n": (2, 0.1)})
    assert fleet.meter.demand() == pytest.approx({"m": 0.5, "n": 0.2})
    assert fleet.meter.seconds_per_item("m") == pytest.approx(0.05)
    assert fleet.meter.consumed == pytest.approx(70.0)
    assert fleet.meter.seconds_per_item("other") is None


def test_what_changed_counts_half_after_a_halflife_of_device_time() -> None:
    fleet = Fleet(halflife=100.0)
    fleet.run(2000, {"m": (10, 0.05), "n": (10, 0.05)})
    fleet.run(100, {"n": (20, 0.05)})
    assert fleet.demand("m") == pytest.approx(0.25, rel=0.01)
    assert fleet.demand("n") == pytest.approx(0.75, rel=0.01)


def test_cost_is_averaged_over_device_time_too() -> None:
    fleet = Fleet(halflife=100.0)
    fleet.run(2000, {"m": (10, 0.05)})
    fleet.run(200, {"m": (10, 0.1)})
    # Rows fade with the device time: of 200 s at 0.1 s there are 2,000, over which 2 half-lives passed.
    assert 0.08 < (fleet.meter.seconds_per_item("m") or 0.0) < 0.1


def test_in_silence_demand_stays_and_a_burst_after_it_counts() -> None:
    fleet = Fleet()
    fleet.run(600, {"m": (10, 0.05), "n": (2, 0.05)})
    before = fleet.meter.demand()
    fleet.now += 100_000.0
    assert fleet.meter.demand() == pytest.approx(before)
    fleet.run(1500, {"n": (20, 0.05)})
    assert fleet.demand("n") == pytest.approx(1.0, rel=0.05)
    assert fleet.demand("m") < 0.05


def test_slow_arrivals_make_rates_over_all_the_time_between_them() -> None:
    fleet = Fleet(halflife=1.0, workers=1)
    for _ in range(200):
        fleet.run(1, {"m": (1, 0.01)})
        fleet.run(9, {})
    assert fleet.demand("m") == pytest.approx(0.001, rel=0.15)


def test_a_model_that_was_not_measured_costs_the_mean() -> None:
    meter = DemandMeter(300.0)
    meter.observe(0.0, {}, {"w": {}})
    meter.observe(1.0, {"new": 4}, {"w": {}})
    assert meter.demand() == pytest.approx({"new": 4 * UNMEASURED_SECONDS})
    meter.observe(2.0, {"new": 8}, {"w": {"a": Totals(2.0, 20), "b": Totals(3.0, 10)}})
    assert meter.demand()["new"] == pytest.approx(4 * 0.2)


def test_what_was_before_the_first_reading_gives_costs_only() -> None:
    meter = DemandMeter(300.0)
    meter.observe(1000.0, {"m": 1_000_000}, {"w": {"m": Totals(5000.0, 10_000)}})
    assert meter.consumed == 0.0
    assert meter.demand() == {"m": 0.0}
    assert meter.seconds_per_item("m") == 0.5
    meter.observe(1001.0, {"m": 1_000_010}, {"w": {"m": Totals(5001.0, 10_010)}})
    assert meter.seconds_per_item("m") == pytest.approx(0.1)
    assert meter.consumed == 1.0


def test_a_worker_that_restarted_is_read_from_zero() -> None:
    meter = DemandMeter(300.0)
    meter.observe(0.0, {}, {"w": {}})
    meter.observe(1.0, {"m": 100}, {"w": {"m": Totals(10.0, 100)}})
    meter.observe(2.0, {"m": 120}, {"w": {"m": Totals(2.0, 20)}})
    assert meter.consumed == pytest.approx(12.0)
    meter.observe(3.0, {"m": 5}, {"w": {"m": Totals(2.5, 25)}})
    assert meter.consumed == pytest.approx(12.5)
    assert meter.seconds_per_item("m") == pytest.approx(0.1)


def test_a_worker_that_was_away_is_read_from_where_it_was() -> None:
    meter = DemandMeter(300.0)
    meter.observe(0.0, {}, {"w": {"m": Totals(100.0, 10)}, "x": {}})
    meter.observe(1.0, {}, {"x": {}})
    meter.observe(2.0, {}, {"w": {"m": Totals(101.0, 20)}})
    assert meter.consumed == pytest.approx(1.0)


def test_a_worker_that_joins_with_a_history_spends_from_now_on() -> None:
    meter = DemandMeter(300.0)
    meter.observe(0.0, {}, {"w": {}})
    meter.observe(1.0, {}, {"x": {"m": Totals(1e4, 10)}})
    assert meter.consumed == 0.0
    meter.observe(2.0, {}, {"x": {"m": Totals(1e4 + 1, 20), "loaded": Totals(0.5, 5)}})
    assert meter.consumed == pytest.approx(1.5)


def test_readings_may_come_in_parts_at_one_time() -> None:
    whole, parts = DemandMeter(10.0), DemandMeter(10.0)
    for second in range(50):
        arrivals = {"m": 10 * second, "n": second}
        totals = {f"w{w}": {"m": Totals(0.1 * second * w, 5 * second)} for w in range(1, 4)}
        whole.observe(second, arrivals, totals)
        parts.observe(second, arrivals, {})
        for worker, models in totals.items():
            parts.observe(second, {}, {worker: models})
    assert parts.consumed == pytest.approx(whole.consumed)
    assert parts.demand() == pytest.approx(whole.demand(), rel=0.1)


def test_another_halflife_from_now_on() -> None:
    fleet = Fleet(halflife=1e6)
    fleet.run(100, {"m": (10, 0.05), "n": (10, 0.05)})
    before = fleet.meter.demand()
    fleet.meter.follow(10.0)
    assert fleet.meter.demand() == pytest.approx(before)
    fleet.run(100, {"n": (20, 0.05)})
    assert fleet.demand("m") < 0.01
    assert fleet.demand("n") == pytest.approx(1.0, rel=0.02)


def test_what_is_long_gone_is_forgotten() -> None:
    fleet = Fleet(halflife=1.0)
    fleet.totals["gone"] = {}
    fleet.run(10, {f"model{number}": (4, 0.01) for number in range(50)})
    fleet.run(10, {"m": (10, 0.05)})
    fleet.totals = {"w0": {"m": fleet.totals["w0"]["m"]}}
    fleet.arrivals = {"m": fleet.arrivals["m"], "model7": fleet.arrivals["model7"]}
    fleet.now += 2 * 86_400.0
    fleet.run(200, {"m": (10, 0.05)})
    highest = 0.0
    for _ in range(400):
        fleet.run(1, {"m": (10, 0.05)})
        highest = max(highest, fleet.demand("model7"))
    # The gateway still counts one of them: were it forgotten, its count would be taken for new arrivals.
    assert set(fleet.meter.demand()) == {"m", "model7"}
    assert highest < 1e-9


def test_one_request_after_a_long_time_counts_as_one() -> None:
    fleet = Fleet(halflife=1.0)
    fleet.run(20, {"m": (10, 0.05), "rare": (100, 0.001)})
    fleet.run(200, {"m": (10, 0.05)})
    fleet.run(1, {"m": (10, 0.05), "rare": (2, 0.001)})
    assert fleet.demand("rare") < 0.002


WEIRD = st.one_of(
    st.floats(), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e300, 5e-324]), st.integers(-5, 5)
)
COUNTS = st.one_of(st.integers(-(2**63), 2**63), st.integers(0, 100))


@pytest.mark.slow
@settings(STEADY, max_examples=40)
@given(
    st.lists(
        st.tuples(
            WEIRD,
            st.dictionaries(st.sampled_from("mn"), COUNTS),
            st.dictionaries(
                st.sampled_from(["w", "x"]),
                st.dictionaries(st.sampled_from("mn"), st.builds(Totals, WEIRD, COUNTS)),
            ),
        ),
        max_size=8,
    )
)
def test_numbers_that_cannot_be_never_poison_what_is_known(
    readings: list[tuple[float, dict[str, int], dict[str, dict[str, Totals]]]],
) -> None:
    meter = DemandMeter(300.0)
    consumed = 0.0
    for now, arrivals, totals in readings:
        meter.observe(now, arrivals, totals)
        assert all(math.isfinite(demand) and demand >= 0 for demand in meter.demand().values())
        assert consumed <= meter.consumed < math.inf
        consumed = meter.consumed
    # And it goes on measuring. A clock that was once far ahead is the only thing it cannot tell from time.
    start = max([0.0, *(now for now, _, _ in readings if now < math.inf)])
    if start > 1e9:
        return
    for second in range(1, 3):
        at = start + 100 * second
        meter.observe(at, {"m": 2**64 + second}, {"w": {"m": Totals(90_000.0 + second, 2**64 + second)}})
    assert meter.consumed >= consumed + 1.0
    assert meter.demand()["m"] > 0.0


def test_one_reading_of_days_is_not_believed() -> None:
    meter = DemandMeter(300.0)
    meter.observe(0.0, {}, {"w": {"m": Totals(0.0, 0)}})
    meter.observe(1.0, {"m": 10}, {"w": {"m": Totals(1.0, 10)}})
    meter.observe(2.0, {"m": 20}, {"w": {"m": Totals(1e18, 20)}})
    assert meter.consumed == 1.0
    meter.observe(3.0, {"m": 30}, {"w": {"m": Totals(3.0, 30)}})
    assert meter.consumed == pytest.approx(4.0)
    assert meter.seconds_per_item("m") == pytest.approx(0.1)
