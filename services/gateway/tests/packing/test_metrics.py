"""The series of the placement: as deployment.md's `curl … | grep` shows it, before any traffic."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from services.gateway.tests.packing.stand import Stand, stand

from reactant_core.testing import async_test
from reactant_gateway.packing.metrics import PackingMetrics


def lines(made: Stand, served: set[str]) -> set[str]:
    """The samples of a scrape."""
    registry = CollectorRegistry()
    PackingMetrics(registry, made.packer, made.router, lambda: served)
    page = generate_latest(registry).decode()
    return {line for line in page.splitlines() if not line.startswith("#") and "_created" not in line}


@async_test
async def test_one_home_each_before_any_traffic() -> None:
    async with stand("ab", {"m": 1, "n": 1}, default_replicas=1) as made:
        m, n = made.homes["m"][0], made.homes["n"][0]
        assert lines(made, {"m", "n"}) == {
            'gateway_repacks_total{trigger="start"} 1.0',
            f'gateway_placement_weight{{model="m",worker="{m}"}} 0.0',
            f'gateway_placement_weight{{model="n",worker="{n}"}} 0.0',
            'gateway_model_fill_quantum{model="m"} 1e+06',
            'gateway_model_fill_quantum{model="n"} 1e+06',
            'gateway_model_utilization{model="m"} 0.0',
            'gateway_model_utilization{model="n"} 0.0',
        }
        assert not any('model="n"' in line for line in lines(made, {"m"}))


@async_test
async def test_nothing_but_the_counter_in_another_mode() -> None:
    async with stand("ab", {"m": 1}) as made:
        await made.steering.set_policy({"mode": "round_robin"})
        assert lines(made, {"m"}) == {'gateway_repacks_total{trigger="start"} 1.0'}
