from __future__ import annotations

from typing import Any

import pytest

from reactant_core.config import GatewayConfig
from reactant_core.config.gateway_reload import reloadable_changes, reloaded

TLS = {"cert_file": "/c", "key_file": "/k"}


def config(**tree: Any) -> GatewayConfig:
    return GatewayConfig.model_validate(tree)


@pytest.mark.parametrize(
    ("tree", "live", "restart"),
    [
        ({}, (), ()),
        ({"endpoints": ("a:1",), "worker_names": ("x",)}, ("endpoints", "worker_names"), ()),
        ({"metrics_endpoints": ("a:2",)}, ("metrics_endpoints",), ()),
        (
            {"scheduling": {"mode": "least_outstanding", "work_basis": "items"}},
            ("scheduling.mode", "scheduling.work_basis"),
            (),
        ),
        (
            {"scheduling": {"models": {"m": {"replicas": 2}}, "hysteresis": 0.2}},
            ("scheduling.hysteresis", "scheduling.models"),
            (),
        ),
        ({"worker_client": {"max_in_flight": 1}}, ("worker_client.max_in_flight",), ()),
        (
            {"logging": {"level": "debug"}, "listen": {"port": 1}, "lameduck_seconds": 1},
            ("logging.level", "lameduck_seconds"),
            ("listen.port",),
        ),
        ({"drain_timeout_seconds": 1, "registry": "r:1"}, ("drain_timeout_seconds",), ("registry",)),
        ({"grpc": {"max_recv_msg_bytes": 4096}}, (), ("grpc.max_recv_msg_bytes",)),
        ({"startup_wait_seconds": 1}, (), ("startup_wait_seconds",)),
        ({"tls": TLS}, (), ("tls",)),
    ],
)
def test_what_a_running_gateway_takes_over(
    tree: dict[str, Any], live: tuple[str, ...], restart: tuple[str, ...]
) -> None:
    old, new = GatewayConfig(), config(**tree)
    assert reloadable_changes(old, new) == (live, restart)
    taken = reloaded(old, new)
    assert reloadable_changes(taken, new) == ((), restart)
    assert reloadable_changes(old, taken) == (live, ())


def test_a_section_that_goes_is_one_change() -> None:
    with_tls = config(tls=TLS)
    assert reloadable_changes(with_tls, GatewayConfig()) == ((), ("tls",))
    other = config(tls={**TLS, "client_ca_file": "/ca"})
    assert reloadable_changes(with_tls, other) == ((), ("tls.client_ca_file",))
