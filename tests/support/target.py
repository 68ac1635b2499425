"""What a conformance test talks to: a server, and the canary that tells whether it is still well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from tests.support import metrics
from tests.support.client import Client
from tests.support.fleet import Fleet
from tests.support.messages import arrays, echo, floats
from tests.support.metrics import Page
from tests.support.process import ServerProcess

from reactant_core.testing import eventually_sync

CANARY_SECONDS = 1.0
QUIET_SECONDS = 3.0


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A server under test.

    Attributes:
        name: what it is, such as `worker-native` or `gateway`.
        process: the process that owns the address, or a gateway with its workers.
        client: a client connected to it.
    """

    name: str
    process: ServerProcess | Fleet
    client: Client

    @property
    def replicas(self) -> int:
        """Workers that have each model: requests of a model go to them in turn."""
        return self.process.replicas

    @property
    def behind_gateway(self) -> bool:
        """The address is a gateway's."""
        return isinstance(self.process, Fleet)

    @property
    def requests_total(self) -> str:
        """The counter of requests by model and status, as clients saw them.

        A gateway has its own: what it answers itself no worker has seen, and what it tries twice two have.
        """
        return "gateway_requests_total" if self.behind_gateway else "worker_requests_total"

    def page(self, *only: str) -> Page:
        """Its metrics now; through a gateway those of the workers too, which `Page.value` adds up.

        `only` names the samples that are read: all of a page take longer than what most tests are about.
        """
        answer = self.process.get("/metrics")
        assert answer.status == 200
        return metrics.parse(answer.body, only)

    def in_flight(self) -> float:
        """Requests admitted and not answered."""
        return self.page("worker_inflight_requests").value("worker_inflight_requests")

    def depth(self, model: str) -> float:
        """Requests of a model that wait."""
        return self.page("worker_queue_depth").value("worker_queue_depth", model=model)

    def executed(self, model: str) -> float:
        """Requests of a model that ran on the device."""
        name = "worker_requests_served_total"
        return self.page(name).value(name, model=model)

    def assert_quiet(self) -> None:
        """Nothing is in flight or queued, or will be in a moment."""
        eventually_sync(self._quiet, QUIET_SECONDS, what="in-flight and queue gauges return to 0")

    def _quiet(self) -> bool:
        gauges = "worker_inflight_requests", "worker_queue_depth"
        page = self.page(*gauges)
        return all(page.value(name) == 0 for name in gauges)

    def assert_well(self) -> None:
        """The canary of public-bugs.md: `echo` within a second, gauges back to 0, same process."""
        reply = self.client.infer(echo(start=7.0), timeout=5)
        np.testing.assert_array_equal(arrays(reply.ok())["Y"], floats(1, start=7.0))
        assert reply.seconds < CANARY_SECONDS, f"the canary took {reply.seconds:.2f} s"
        self.assert_quiet()
        assert self.process.running
