"""The sections of a gateway's configuration, one frozen model each."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import BeforeValidator, Field

from reactant_core.config.sections import LogLevel, Port, PositiveSeconds, Section

# Probes and pings more often than this would be load, not supervision.
Interval = Annotated[PositiveSeconds, Field(ge=0.1)]

# Device time of a whole fleet: a thousand workers spend a day of it in a minute and a half.
ComputeSeconds = Annotated[float, Field(gt=0, le=1_000_000_000)]
FillMode = Literal["run", "spread", "inflight"]
FillFactor = Annotated[float, Field(gt=0, le=1000)]

_REPLICAS = "all or a count from 1 to 100000"


def _replicas(value: object) -> object:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100_000):
        return value
    raise ValueError(f"accepted is {_REPLICAS}")


Replicas = Annotated[int | Literal["all"], BeforeValidator(_replicas), Field(description=_REPLICAS)]


@final
class ListenConfig(Section):
    """Where the gateway listens.

    Attributes:
        host: address or name to bind.
        port: gRPC.
        metrics_port: HTTP with `/healthz`, `/readyz`, `/metrics`.
    """

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"  # noqa: S104 (a server is there to be reached)
    port: Port = 8001
    metrics_port: Port = 8002


@final
class WorkerClientConfig(Section):
    """How the gateway reaches each worker and notices that it is gone.

    Attributes:
        probe_seconds: time between looks at a worker's readiness and models.
        probe_timeout_seconds: a probe without an answer in this time has failed; three in a row eject.
        ping_seconds: time between HTTP/2 PINGs on each connection.
        ping_timeout_seconds: a connection whose PING is not answered in this time is lost.
        max_connections: most HTTP/2 connections to one worker.
        max_in_flight: most requests in flight on one worker.
    """

    probe_seconds: Interval = 10.0
    probe_timeout_seconds: Interval = 2.0
    ping_seconds: Interval = 1.0
    ping_timeout_seconds: Interval = 2.0
    max_connections: Annotated[int, Field(ge=1, le=64)] = 4
    max_in_flight: Annotated[int, Field(ge=1, le=1_000_000)] = 1024


@final
class LoggingConfig(Section):
    """What is logged: `level` is the lowest."""

    level: LogLevel = "info"


@final
class ModelRoutingConfig(Section):
    """One model's own settings (`lpt_packing`); what is None follows the setting for all.

    Attributes:
        replicas: workers it is placed on, a count or `all`; None is `default_replicas`.
        fill_mode: None is `routing_fill_mode`.
        fill_factor: None is `routing_fill_factor`.
    """

    replicas: Replicas | None = None
    fill_mode: FillMode | None = None
    fill_factor: FillFactor | None = None


@final
class SchedulingConfig(Section):
    """Which replica gets a request. What is beside `mode` and `work_basis` is for `lpt_packing`.

    Attributes:
        mode: replicas in turn, the one with the least outstanding work, or models packed onto workers.
        work_basis: what counts as work: measured cost of the items, items, or requests.
        default_replicas: workers each model is placed on, a count or `all`.
        rebalance_compute_seconds: device time of the whole fleet between two placements.
        first_rebalance_compute_seconds: the same before the first that knows any traffic.
        demand_halflife_compute_seconds: device time of the whole fleet after which traffic counts half. As
            long as the time between two placements, so that each looks mostly at what came since the last
            and a shift that lasts has most of its weight at the second.
        hysteresis: share of a worker's capacity that must be gained before a model leaves its home.
        forbid_memory_oversubscription: never plan more weights on a worker than its budget while another
            has room for them.
        routing_fill_mode: how requests fill the replicas of a model: `run` gives each a batch in turn,
            `spread` keeps them even, `inflight` fills one before the next.
        routing_fill_factor: the batch of `run` and `inflight`, in parts of the model's largest.
        routing_policy: the replica that is filled next: on the least loaded worker, or in turn.
        compaction_mode: what workers do once placements have changed: put the weights on the device together
            (`eager`), nothing (`off`), or load the new set as well (`scheduled`).
        compaction_interval: after how many placements that changed something.
        models: settings by model name.
    """

    mode: Literal["round_robin", "least_outstanding", "lpt_packing"] = "round_robin"
    work_basis: Literal["compute", "items", "requests"] = "compute"
    default_replicas: Replicas = "all"
    rebalance_compute_seconds: ComputeSeconds = 300.0
    first_rebalance_compute_seconds: ComputeSeconds = 60.0
    demand_halflife_compute_seconds: ComputeSeconds = 300.0
    hysteresis: Annotated[float, Field(ge=0, lt=1)] = 0.1
    forbid_memory_oversubscription: bool = True
    routing_fill_mode: FillMode = "run"
    routing_fill_factor: FillFactor = 1.0
    routing_policy: Literal["fill_least", "fill_rr"] = "fill_least"
    compaction_mode: Literal["eager", "off", "scheduled"] = "eager"
    compaction_interval: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    models: dict[Annotated[str, Field(min_length=1)], ModelRoutingConfig] = Field(default_factory=dict)
