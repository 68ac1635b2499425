from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.config import (
    NodeConfig,
    WorkerConfig,
    default_node_yaml,
    load_node_config,
    load_worker_config,
)
from reactant_core.config.document import dotted, parse_document
from reactant_core.config.effective import leaves


def test_defaults_are_those_of_the_deployment_contract() -> None:
    node = load_node_config({}).value
    assert (node.public_port, node.public_metrics_port) == (8001, 8002)
    assert (node.base_port, node.metrics_base_port) == (8080, 9100)
    assert node.model_repo == (Path("/var/lib/reactantserver/models"),)
    assert node.run_dir == Path("/run/reactantserver")
    assert (node.role, node.registry, node.gpus, node.cpu_workers) == ("all", None, None, 2)

    worker = load_worker_config({}).value
    assert worker == WorkerConfig()
    assert (worker.name, worker.endpoints.port, worker.endpoints.metrics_port) == ("worker0", 8080, 9100)
    assert worker.model_dirs == (Path("/var/lib/reactantserver/models"),)
    assert worker.cache_dir == Path("/var/cache/reactantserver")
    assert (worker.model_control_mode, worker.model_poll_seconds) == ("dynamic", 15)
    assert (worker.lameduck_seconds, worker.drain_timeout_seconds) == (2, 20)
    assert worker.grpc.max_recv_msg_bytes == worker.grpc.max_send_msg_bytes == 512 * 1024**2
    scheduler = worker.scheduler
    assert (scheduler.discipline, scheduler.ema_halflife_seconds, scheduler.recency_penalty_cap) == (
        "fair",
        30,
        0.25,
    )
    assert (scheduler.coalescing_discount, scheduler.cost_ema_alpha) == (0.1, 0.2)
    runtime = worker.runtime
    assert (runtime.mem_fraction, runtime.preallocate, runtime.allow_cpu_fallback) == (0.9, True, False)
    assert (runtime.shared_host_weights, runtime.shared_host_weights_mode) == (False, "660")


def test_built_in_file_says_the_defaults_of_the_models() -> None:
    built_in = NodeConfig.model_validate(parse_document(default_node_yaml(), "built-in").tree)
    assert built_in == NodeConfig()


def test_built_in_file_shows_every_key() -> None:
    document = parse_document(default_node_yaml(), "built-in")
    shown = {dotted(path) for path in document.lines}
    # These two follow from base_port and metrics_base_port, which a value here would hide.
    derived = {"global.endpoints.port", "global.endpoints.metrics_port"}
    assert {dotted(path) for path, _ in leaves(NodeConfig())} - shown == derived


def test_copy_under_deploy_is_the_built_in_file() -> None:
    repository = Path(__file__).parents[3]
    copy = repository / "deploy" / "config" / "node.default.yaml"
    if not (repository / "pyproject.toml").exists():
        pytest.skip("not in a checkout")
    assert copy.read_text(encoding="utf-8") == default_node_yaml()


def test_every_source_is_default_without_file_and_environment() -> None:
    for effective in (load_node_config({}), load_worker_config({})):
        assert set(effective.sources.values()) == {"default"}
