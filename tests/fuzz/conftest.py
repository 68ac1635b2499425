"""One gateway for the cases that are sent one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.fuzz.gateway import FuzzedGateway, fuzzed_gateway

_ENVIRON = {"PYTHONFAULTHANDLER": "1"}


@pytest.fixture(scope="session")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], FuzzedGateway]]:
    """The gateway, started again should a test have killed it."""
    kept: list[FuzzedGateway] = []
    with ExitStack() as stack:

        def running() -> FuzzedGateway:
            if not kept or not kept[-1].process.running:
                folder = tmp_path_factory.mktemp("fuzz")
                kept.append(stack.enter_context(fuzzed_gateway(folder, _ENVIRON)))
            return kept[-1]

        yield running


@pytest.fixture
def gateway(_running: Callable[[], FuzzedGateway]) -> Iterator[FuzzedGateway]:
    """A gateway that must be as well after the test as before."""
    gateway = _running()
    before = gateway.vitals()
    known = len(gateway.faults())
    yield gateway
    assert gateway.process.running, gateway.process.tail(60)
    gateway.wait_settled(before.fds)
    assert not gateway.faults()[known:]
