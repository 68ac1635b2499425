"""Hooks may bring other stubs of package `inference` into the server (case M6).

Triton's and KServe's collide with each other, so each has a worker of its own here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.conformance.test_reflection import listed, services
from tests.support.messages import arrays, echo, floats
from tests.support.target import Target


@pytest.fixture
def with_kserve(explicit: Target) -> Iterator[Target]:
    explicit.client.load("imports_kserve").ok()
    yield explicit
    explicit.client.unload("imports_kserve").ok()


@pytest.mark.slow
def test_m6_hook_that_registers_kserves_messages(with_kserve: Target) -> None:
    for _ in range(2):
        outputs = arrays(with_kserve.client.infer(echo(model="imports_kserve")).ok())
        np.testing.assert_array_equal(outputs["Y"], floats(1, start=1.0))

    assert listed(with_kserve) == services(with_kserve)
    with_kserve.assert_well()


@pytest.mark.slow
def test_m6_a_reload_of_such_a_hook(with_kserve: Target) -> None:
    """The second import finds the names taken by the first; the client's own module is the same one."""
    with_kserve.client.unload("imports_kserve").ok()
    with_kserve.client.load("imports_kserve").ok()

    with_kserve.client.infer(echo(model="imports_kserve")).ok()
