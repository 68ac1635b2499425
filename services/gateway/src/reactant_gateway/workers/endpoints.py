"""Where the workers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from reactant_core.config.addresses import is_same_host
from reactant_core.config.gateway import GatewayConfig


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """One worker's addresses.

    Attributes:
        name: what metrics and logs call it.
        address: gRPC, `host:port` or `unix:/path`.
        metrics_address: HTTP, `host:port`; None where it was not given.
        same_host: it shares this machine's memory, as far as the address shows.
    """

    name: str
    address: str
    metrics_address: str | None
    same_host: bool


def endpoints_of(config: GatewayConfig) -> tuple[Endpoint, ...]:
    """The workers that the configuration lists, in its order."""
    metrics = config.metrics_endpoints or (None,) * len(config.endpoints)
    return tuple(
        Endpoint(name, address, metrics_address, is_same_host(address))
        for name, address, metrics_address in zip(config.names, config.endpoints, metrics, strict=True)
    )
