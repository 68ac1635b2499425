"""The workers of a gateway whose configuration changes while it runs."""

from __future__ import annotations

import asyncio

import pytest

from reactant_core.config.gateway import GatewayConfig
from reactant_core.testing import async_test, eventually, free_port
from reactant_gateway.router import Router
from reactant_gateway.workers import roster as roster_module
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.roster import Roster
from reactant_policy.routing.spread import RoundRobin


async def _nothing(handle: WorkerHandle) -> None:
    pass


def _config(*workers: tuple[str, int]) -> GatewayConfig:
    return GatewayConfig(
        endpoints=tuple(f"127.0.0.1:{port}" for _, port in workers),
        worker_names=tuple(name for name, _ in workers),
    )


def _names(roster: Roster) -> list[str]:
    return [handle.name for handle in roster.handles]


@async_test
async def test_workers_leave_when_those_in_their_place_have_been_looked_at() -> None:
    a, b = ("a", free_port()), ("b", free_port())
    roster = Roster(_config(a), router=Router(RoundRobin(), "requests"), before_admission=_nothing)
    watching = asyncio.create_task(roster.discovery.run())
    roster.follow(_config(b))
    assert _names(roster) == ["a", "b"]
    await eventually(lambda: _names(roster) == ["b"])
    assert list(roster.links) == ["b"]
    watching.cancel()
    await asyncio.wait([watching])
    await roster.close()


@async_test
async def test_workers_that_come_back_before_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "_LOOK_SECONDS", 0.05)
    a, b = ("a", free_port()), ("b", free_port())
    # Nobody watches, so nobody is looked at: the wait runs its whole time.
    roster = Roster(_config(a), router=Router(RoundRobin(), "requests"), before_admission=_nothing)
    roster.follow(_config(b))
    roster.follow(_config(a))
    await eventually(lambda: not roster._leaving)
    assert _names(roster) == ["a"]
    assert list(roster.links) == ["a"]
    await roster.close()
