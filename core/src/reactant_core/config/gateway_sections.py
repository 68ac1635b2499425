"""The sections of a gateway's configuration, one frozen model each."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import BeforeValidator, Field

from reactant_core.config.sections import LogLevel, Port, PositiveSeconds, Section

# Probes and pings more often than this would be load, not supervision.
Interval = Annotated[PositiveSeconds, Field(ge=0.1)]

_REPLICAS = "all or a count from 1 to 100000"


def _replicas(value: object) -> object:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100_000):
        return value
    raise ValueError(f"accepted is {_REPLICAS}")


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
class SchedulingConfig(Section):
    """Which replica gets a request.

    Attributes:
        mode: replicas in turn, the one with the least outstanding work, or models packed onto workers.
        work_basis: what counts as work: measured cost of the items, items, or requests.
        default_replicas: workers each model is placed on (`lpt_packing`), a count or `all`.
    """

    mode: Literal["round_robin", "least_outstanding", "lpt_packing"] = "round_robin"
    work_basis: Literal["compute", "items", "requests"] = "compute"
    default_replicas: Annotated[
        int | Literal["all"], BeforeValidator(_replicas), Field(description=_REPLICAS)
    ] = "all"
