"""The gateway's configuration: which source wins, who owns the endpoints, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.config import (
    GATEWAY_VARIABLES,
    ConfigError,
    Effective,
    GatewayConfig,
    default_gateway_yaml,
    find_gateway_file,
    load_gateway_config,
    load_node_config,
)
from reactant_core.config.document import dotted, parse_document
from reactant_core.config.effective import leaves
from reactant_core.config.faults import Fault
from reactant_core.config.gateway_sections import ModelRoutingConfig

FILE = """\
endpoints: [gpu-a:8080, "unix:/run/b.sock"]
metrics_endpoints:
  - gpu-a:9100
  - "[::1]:9100"
worker_names: [a, b]
listen: {port: 9001}
scheduling:
  mode: least_outstanding
"""


@pytest.fixture
def gateway_file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yml"
    path.write_text(FILE, encoding="utf-8")
    return path


def load(environ: dict[str, str], *, default_file: Path = Path("/nonexistent")) -> Effective[GatewayConfig]:
    """Loads without looking at the machine's own file."""
    return load_gateway_config(environ, default_file=default_file)


def faults(environ: dict[str, str], default_file: Path = Path("/nonexistent")) -> dict[str, Fault]:
    """The faults of loading, by key."""
    with pytest.raises(ConfigError) as caught:
        load(environ, default_file=default_file)
    found = {fault.key: fault for fault in caught.value.faults}
    assert len(found) == len(caught.value.faults)
    return found


def test_defaults_are_those_of_the_contract() -> None:
    gateway = load({}).value
    assert gateway == GatewayConfig()
    assert (gateway.listen.host, gateway.listen.port, gateway.listen.metrics_port) == ("0.0.0.0", 8001, 8002)
    assert gateway.grpc.max_recv_msg_bytes == gateway.grpc.max_send_msg_bytes == 512 * 1024**2
    client = gateway.worker_client
    assert (client.probe_seconds, client.probe_timeout_seconds) == (10, 2)
    assert (client.ping_seconds, client.ping_timeout_seconds) == (1, 2)
    assert (client.max_connections, client.max_in_flight) == (4, 1024)
    assert (gateway.scheduling.mode, gateway.scheduling.work_basis) == ("round_robin", "compute")
    assert (gateway.lameduck_seconds, gateway.drain_timeout_seconds) == (2, 20)
    assert (gateway.tls, gateway.registry, gateway.endpoints, gateway.names) == (None, None, (), ())


def test_built_in_file_says_the_defaults_and_shows_every_key() -> None:
    document = parse_document(default_gateway_yaml(), "built-in")
    assert GatewayConfig.model_validate(document.tree) == GatewayConfig()
    shown = {dotted(path) for path in document.lines}
    assert {dotted(path) for path, _ in leaves(GatewayConfig())} <= shown
    assert set(load({}).sources.values()) == {"default"}


def test_files_under_deploy_are_current_and_valid() -> None:
    deploy = Path(__file__).parents[3] / "deploy" / "config"
    if not deploy.exists():
        pytest.skip("not in a checkout")
    assert (deploy / "gateway.default.yaml").read_text(encoding="utf-8") == default_gateway_yaml()
    example = load_gateway_config({}, gateway_file=deploy / "gateway.yml").value
    assert len(example.endpoints) == len(example.metrics_endpoints) == len(example.worker_names) > 1
    node = load_node_config({}, node_file=deploy / "node.yaml").value
    assert node.global_.scheduler.models


def test_the_environment_goes_over_the_file(gateway_file: Path) -> None:
    effective = load(
        {
            "REACTANT_GATEWAY_FILE": str(gateway_file),
            "REACTANT_GATEWAY_LISTEN_METRICS_PORT": "9002",
            "REACTANT_GATEWAY_SCHEDULING_MODE": "round_robin",
        }
    )
    gateway, sources = effective.value, effective.sources
    assert (gateway.listen.port, gateway.listen.metrics_port) == (9001, 9002)
    assert gateway.scheduling.mode == "round_robin"
    assert gateway.endpoints == ("gpu-a:8080", "unix:/run/b.sock")
    assert gateway.metrics_endpoints == ("gpu-a:9100", "[::1]:9100")
    assert gateway.names == ("a", "b")
    assert sources["listen.port"] == f"{gateway_file}:6"
    assert sources["listen.metrics_port"] == "REACTANT_GATEWAY_LISTEN_METRICS_PORT"
    assert sources["endpoints"] == f"{gateway_file}:1"
    assert sources["scheduling.work_basis"] == "default"
    assert effective.notes == ()


def test_which_file_is_in_force(gateway_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text("listen: {port: 7000}\n", encoding="utf-8")
    assert load({}, default_file=gateway_file).value.listen.port == 9001
    named = {"REACTANT_GATEWAY_FILE": f" {other} "}
    assert load(named, default_file=gateway_file).value.listen.port == 7000
    assert load_gateway_config(named, gateway_file=gateway_file).value.listen.port == 9001
    assert find_gateway_file(named, default_file=gateway_file) == other
    assert find_gateway_file({"REACTANT_GATEWAY_FILE": ""}, default_file=gateway_file) == gateway_file
    assert find_gateway_file({}, default_file=tmp_path / "none.yml") is None
    assert find_gateway_file({}, default_file=gateway_file / "below-a-file.yml") is None


def test_a_file_that_is_there_and_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    dangling = tmp_path / "gateway.yml"
    dangling.symlink_to(tmp_path / "gone.yml")
    assert "cannot be read: no such file" in faults({}, dangling)["gateway file"].problem
    found = faults({"REACTANT_GATEWAY_FILE": "/nonexistent.yml"})
    assert "/nonexistent.yml cannot be read" in found["REACTANT_GATEWAY_FILE"].problem


def test_lists_of_the_environment() -> None:
    effective = load(
        {
            "REACTANT_GATEWAY_WORKERS": "127.0.0.1:8080, unix:/run/w1.sock,[::1]:8082,",
            "REACTANT_GATEWAY_METRICS_ENDPOINTS": "a:1,a:2,a:3",
        }
    )
    assert effective.value.endpoints == ("127.0.0.1:8080", "unix:/run/w1.sock", "[::1]:8082")
    assert effective.value.metrics_endpoints == ("a:1", "a:2", "a:3")
    assert effective.value.names == ("worker0", "worker1", "worker2")
    assert effective.sources["endpoints"] == "REACTANT_GATEWAY_WORKERS"


@pytest.mark.parametrize(
    "text", ["endpoints: [a:1]\n", "listen: {port: 9001}\n", "endpoints:\n", "# empty\n"]
)
def test_a_file_that_exists_owns_the_endpoints(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(text, encoding="utf-8")
    # Not even a wrong value matters.
    environ = {"REACTANT_GATEWAY_WORKERS": "b:1,nonsense", "REACTANT_GATEWAY_WORKER_NAMES": "x,y,z"}
    effective = load(environ, default_file=path)
    own = ("a:1",) if "a:1" in text else ()
    assert (effective.value.endpoints, effective.value.worker_names) == (own, ())
    assert effective.notes == tuple(
        f"{name} is not followed: {path} owns the list of endpoints" + ("" if own else ", and lists none")
        for name in environ
    )


def test_every_scalar_has_a_variable() -> None:
    given = {
        "REACTANT_GATEWAY_LISTEN_HOST": ("::", "listen.host", "::"),
        "REACTANT_GATEWAY_TLS_CERT_FILE": ("/c", "tls.cert_file", Path("/c")),
        "REACTANT_GATEWAY_TLS_KEY_FILE": ("/k", "tls.key_file", Path("/k")),
        "REACTANT_GATEWAY_GRPC_MAX_SEND_MSG_BYTES": ("4096", "grpc.max_send_msg_bytes", 4096),
        "REACTANT_GATEWAY_WORKER_CLIENT_PING_SECONDS": ("0.5", "worker_client.ping_seconds", 0.5),
        "REACTANT_GATEWAY_LOGGING_LEVEL": ("debug", "logging.level", "debug"),
        "REACTANT_GATEWAY_SCHEDULING_WORK_BASIS": ("items", "scheduling.work_basis", "items"),
        "REACTANT_GATEWAY_REGISTRY": ("r:8003", "registry", "r:8003"),
        "REACTANT_GATEWAY_SCHEDULING_MODE": ("lpt_packing", "scheduling.mode", "lpt_packing"),
        "REACTANT_GATEWAY_SCHEDULING_DEFAULT_REPLICAS": ("1", "scheduling.default_replicas", 1),
        "REACTANT_GATEWAY_SCHEDULING_REBALANCE_COMPUTE_SECONDS": (
            "5",
            "scheduling.rebalance_compute_seconds",
            5.0,
        ),
        "REACTANT_GATEWAY_SCHEDULING_FORBID_MEMORY_OVERSUBSCRIPTION": (
            "false",
            "scheduling.forbid_memory_oversubscription",
            False,
        ),
        "REACTANT_GATEWAY_SCHEDULING_ROUTING_FILL_MODE": ("spread", "scheduling.routing_fill_mode", "spread"),
        "REACTANT_GATEWAY_SCHEDULING_ROUTING_FILL_FACTOR": ("0.5", "scheduling.routing_fill_factor", 0.5),
        "REACTANT_GATEWAY_SCHEDULING_COMPACTION_INTERVAL": ("3", "scheduling.compaction_interval", 3),
        "REACTANT_GATEWAY_STARTUP_WAIT_SECONDS": ("30", "startup_wait_seconds", 30.0),
    }
    effective = load({name: text for name, (text, _, _) in given.items()})
    for name, (_, key, value) in given.items():
        at = effective.value
        for part in key.split("."):
            at = getattr(at, part)
        assert at == value, key
        assert effective.sources[key] == name
    # A mapping by model name has no variable; of a list only the endpoints have.
    scalars = {dotted(path) for path, value in leaves(effective.value) if not isinstance(value, tuple | dict)}
    assert scalars <= {dotted(variable.path) for variable in GATEWAY_VARIABLES.values()}


def test_settings_of_single_models(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(
        "scheduling:\n  default_replicas: 1\n  models:\n"
        "    hot: {replicas: 2, fill_mode: spread}\n    wide: {replicas: all, fill_factor: 0.5}\n",
        encoding="utf-8",
    )
    effective = load({}, default_file=path)
    assert effective.value.scheduling.models == {
        "hot": ModelRoutingConfig(replicas=2, fill_mode="spread"),
        "wide": ModelRoutingConfig(replicas="all", fill_factor=0.5),
    }
    assert effective.sources["scheduling.models.hot.replicas"] == f"{path}:4"


def test_every_fault_of_the_scheduling_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(
        "scheduling:\n  hysteresis: 1\n  rebalance_compute_seconds: 0\n  routing_policy: fill_most\n"
        "  models:\n    hot: {replicas: 0, fill_mode: runs, fill_facto: 2}\n",
        encoding="utf-8",
    )
    found = faults({}, path)
    assert set(found) == {
        "scheduling.hysteresis",
        "scheduling.rebalance_compute_seconds",
        "scheduling.routing_policy",
        "scheduling.models.hot.replicas",
        "scheduling.models.hot.fill_mode",
        "scheduling.models.hot.fill_facto",
    }
    assert found["scheduling.models.hot.fill_facto"].suggestion == "fill_factor"
    assert "all or a count from 1 to 100000" in found["scheduling.models.hot.replicas"].problem


def test_what_processes_hand_each_other_is_no_fault() -> None:
    plumbing = {"REACTANT_GATEWAY_LISTEN_FDS": "grpc=7,http=8", "REACTANT_GATEWAY_HOLD_FD": "9"}
    assert load(plumbing).value == GatewayConfig()
    assert (
        load_node_config({**plumbing, "REACTANT_GATEWAY_WORKERS": "a:1"}).value == load_node_config({}).value
    )
    # Of others' variables the gateway says nothing.
    assert load({"REACTANT_PUBLIC_PROT": "1", "INFERENCE_SERVER_X": "1"}).value == GatewayConfig()


def test_faults_of_file_and_environment_come_together(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(
        """\
endpoint: [a:1]
endpoints: ["a:1", 5, "b"]
metrics_endpoints: ["unix:/m"]
worker_names: ["a b"]
listen:
  port: true
  metrics_prot: 1
scheduling: {mode: round-robin, default_replicas: none}
tls: {cert_file: /c}
worker_client: 5
""",
        encoding="utf-8",
    )
    environ = {
        "REACTANT_GATEWAY_LISTEN_PROT": "1",
        "REACTANT_GATEWAY_ENDPOINTS": "a:1",
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "-1",
        "REACTANT_GATEWAY_WORKER_CLIENT_PROBE_SECONDS": "0",
    }
    found = faults(environ, path)
    assert set(found) == {
        "endpoint",
        "endpoints[1]",
        "endpoints[2]",
        "metrics_endpoints[0]",
        "worker_names[0]",
        "listen.port",
        "listen.metrics_prot",
        "scheduling.mode",
        "scheduling.default_replicas",
        "tls.key_file",
        "worker_client",
        *environ,
    }
    assert found["endpoint"].suggestion == "endpoints"
    assert found["endpoints[2]"].problem == "'b': accepted is host:port, [IPv6 address]:port or unix:/path"
    assert found["endpoints[2]"].source == f"{path}:2"
    assert found["metrics_endpoints[0]"].problem == "'unix:/m': accepted is host:port or [IPv6 address]:port"
    assert found["listen.port"].problem == "true; accepted is a whole number from 1 up to 65535"
    assert found["listen.metrics_prot"].suggestion == "metrics_port"
    assert found["scheduling.mode"].suggestion == "round_robin"
    assert (
        found["scheduling.default_replicas"].problem == "'none': accepted is all or a count from 1 to 100000"
    )
    assert found["REACTANT_GATEWAY_LISTEN_PROT"].suggestion == "REACTANT_GATEWAY_LISTEN_PORT"
    # The rule of the other keys leads here.
    assert found["REACTANT_GATEWAY_ENDPOINTS"].suggestion == "REACTANT_GATEWAY_WORKERS"
    assert found["REACTANT_GATEWAY_WORKER_CLIENT_PROBE_SECONDS"].problem.endswith("from 0.1 up to 86400")


def test_a_faulty_list_of_the_environment_names_each_wrong_item() -> None:
    # The names are not counted against a list that could not be read.
    found = faults({"REACTANT_GATEWAY_WORKERS": "a:1,b,c:70000", "REACTANT_GATEWAY_WORKER_NAMES": "x"})
    assert list(found) == ["REACTANT_GATEWAY_WORKERS"]
    problem = found["REACTANT_GATEWAY_WORKERS"].problem
    assert "'b': accepted is host:port" in problem
    assert "'c:70000': accepted is" in problem
    assert "'a:1'" not in problem


def test_lists_that_contradict_each_other(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yml"
    path.write_text(
        "endpoints: [a:1, b:1, A:1]\nmetrics_endpoints: [a:2]\nworker_names: [x, X, x, z]\n", encoding="utf-8"
    )
    found = faults({}, path)
    assert {key: fault.source for key, fault in found.items()} == {
        "endpoints[2]": f"{path}:1",
        "worker_names[2]": f"{path}:3",
        "metrics_endpoints": f"{path}:2",
        "worker_names": f"{path}:3",
    }
    assert found["endpoints[2]"].problem == "'A:1' is listed twice"
    assert (
        found["worker_names"].problem
        == "holds 4, but endpoints holds 3; accepted is one for each of them, or none"
    )
    found = faults({"REACTANT_GATEWAY_WORKERS": "unix:/a,unix:/A", "REACTANT_GATEWAY_WORKER_NAMES": "x"})
    assert list(found) == ["REACTANT_GATEWAY_WORKER_NAMES"]
    assert "REACTANT_GATEWAY_WORKERS holds 2" in found["REACTANT_GATEWAY_WORKER_NAMES"].problem


def test_grpc_and_http_on_one_port() -> None:
    found = faults({"REACTANT_GATEWAY_LISTEN_PORT": "8002"})
    assert list(found) == ["listen.metrics_port"]
    assert "need a port each" in found["listen.metrics_port"].problem


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "100001", "some"])
def test_counts_of_replicas_that_are_none(given: str) -> None:
    assert list(faults({"REACTANT_GATEWAY_SCHEDULING_DEFAULT_REPLICAS": given})) == [
        "REACTANT_GATEWAY_SCHEDULING_DEFAULT_REPLICAS"
    ]
