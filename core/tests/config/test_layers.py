"""Which source wins, and that it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from reactant_core.config import (
    WORKER_VARIABLES,
    ConfigError,
    Effective,
    NodeConfig,
    WorkerConfig,
    load_node_config,
    load_worker_config,
    parse_gpus,
)
from reactant_core.config.accepted import shown
from reactant_core.config.sections import Section

NODE = """\
model_repo: [/m1, /m2]
base_port: 9000
global:
  cache_dir: /c
  scheduler:
    discipline: edf
    max_queue_depth: 10
    models:
      heavy: {weight: 3}
      cold: {residency: unpinned}
workers:
  - name: left
    gpu: 2
  - name: right
    port: 9050
    scheduler:
      discipline: fifo
    runtime: {backend: cpu}
models:
  heavy: [right]
  cold: [right, left]
"""


@pytest.fixture
def node_file(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    path.write_text(NODE, encoding="utf-8")
    return path


def test_global_then_entry_then_environment(node_file: Path) -> None:
    environ = {"INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH": "99", "INFERENCE_SERVER_MODELS_INCLUDE": "a:b"}
    effective = load_worker_config(environ, node_file=node_file, worker="right")
    right, sources = effective.value, effective.sources
    assert right.name == "right"
    assert right.model_dirs == (Path("/m1"), Path("/m2"))
    assert right.cache_dir == Path("/c")
    assert right.scheduler.discipline == "fifo"
    assert right.scheduler.max_queue_depth == 99
    assert right.models_include == ("a", "b")
    assert (right.endpoints.port, right.endpoints.metrics_port) == (9050, 9101)
    assert right.runtime.backend == "cpu"
    assert sources["scheduler.discipline"] == f"{node_file}:17"
    assert sources["scheduler.max_queue_depth"] == "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH"
    assert sources["cache_dir"] == f"{node_file}:4"
    assert sources["endpoints.port"] == f"{node_file}:15"
    assert sources["endpoints.metrics_port"] == "metrics_base_port + 1, default"
    assert sources["scheduler.ema_halflife_seconds"] == "default"
    assert sources["name"] == f"{node_file}:14"

    left = load_worker_config({"INFERENCE_SERVER_NAME": "left"}, node_file=node_file)
    assert (left.value.endpoints.port, left.value.runtime.device_ordinal) == (9000, 2)
    assert left.sources["endpoints.port"] == f"base_port + 0, {node_file}:2"
    assert left.value.scheduler.discipline == "edf"
    # Without a name the first entry is meant.
    assert load_worker_config({}, node_file=node_file).value == left.value


def test_pins_fill_in_residency_and_yield_to_what_is_said(node_file: Path) -> None:
    right = load_worker_config({}, node_file=node_file, worker="right")
    assert right.value.scheduler.model("heavy").residency == "device"
    assert right.value.scheduler.model("heavy").weight == 3
    assert right.sources["scheduler.models.heavy.residency"] == f"{node_file}:20"
    assert right.value.scheduler.model("cold").residency == "unpinned"
    left = load_worker_config({}, node_file=node_file, worker="left").value
    assert left.scheduler.model("heavy").residency is None
    assert left.scheduler.model("another").weight == 1


def test_a_worker_that_is_not_listed(node_file: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no worker is called 'rihgt'; accepted are left, right; did you mean right\?"
    ):
        load_worker_config({}, node_file=node_file, worker="rihgt")


def test_ports_follow_the_number_in_the_name_without_a_list() -> None:
    config = load_worker_config({}, worker="worker3").value
    assert (config.name, config.endpoints.port, config.endpoints.metrics_port) == ("worker3", 8083, 9103)
    config = load_worker_config({"INFERENCE_SERVER_NAME": "gpu-box", "REACTANT_BASE_PORT": "7000"}).value
    assert (config.name, config.endpoints.port) == ("gpu-box", 7000)


def test_the_argument_wins_over_the_name_variable() -> None:
    assert load_worker_config({"INFERENCE_SERVER_NAME": "worker1"}, worker="worker2").value.name == "worker2"


def test_every_scalar_has_a_variable() -> None:
    given = {
        "INFERENCE_SERVER_MODEL_CONTROL_MODE": ("explicit", "model_control_mode", "explicit"),
        "INFERENCE_SERVER_CACHE_DIR": ("/c", "cache_dir", Path("/c")),
        "INFERENCE_SERVER_MODEL_DIRS": ("/a:/b", "model_dirs", (Path("/a"), Path("/b"))),
        "INFERENCE_SERVER_HOOK_THREADS": ("4", "hook_threads", 4),
        "INFERENCE_SERVER_RUNTIME_PREALLOCATE": ("off", "runtime.preallocate", False),
        "INFERENCE_SERVER_RUNTIME_AUTOTUNE_CACHE_DIR": ("/t", "runtime.autotune_cache_dir", Path("/t")),
        "INFERENCE_SERVER_SCHEDULER_COST_EMA_ALPHA": ("0.5", "scheduler.cost_ema_alpha", 0.5),
        "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": ("grpcio", "endpoints.transport", "grpcio"),
        "INFERENCE_SERVER_ENDPOINTS_TLS_CERT_FILE": ("/x.pem", "endpoints.tls.cert_file", Path("/x.pem")),
        "INFERENCE_SERVER_ENDPOINTS_TLS_KEY_FILE": ("/x.key", "endpoints.tls.key_file", Path("/x.key")),
        "INFERENCE_SERVER_GRPC_MAX_SEND_MSG_BYTES": ("1048576", "grpc.max_send_msg_bytes", 1048576),
        "INFERENCE_SERVER_LOG_LEVEL": ("debug", "log_level", "debug"),
    }
    effective = load_worker_config({name: text for name, (text, _, _) in given.items()})
    for name, (_, key, value) in given.items():
        at = effective.value
        for part in key.split("."):
            at = getattr(at, part)
        assert at == value, key
        assert effective.sources[key] == name
    assert "INFERENCE_SERVER_SCHEDULER_MODELS" not in WORKER_VARIABLES


def test_an_empty_variable_is_not_set() -> None:
    environ = {"INFERENCE_SERVER_ENDPOINTS_PORT": " ", "REACTANT_GPUS": "", "REACTANT_NODE_FILE": ""}
    assert load_worker_config(environ).sources["endpoints.port"] == "default"


def test_null_turns_tls_off_for_one_worker_and_a_variable_on_again(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(
        "global:\n  endpoints: {tls: {cert_file: /c, key_file: /k}}\n"
        "workers:\n  - {name: a}\n  - name: b\n    endpoints: {tls: null}\n",
        encoding="utf-8",
    )
    assert load_worker_config({}, node_file=path, worker="a").value.endpoints.tls is not None
    assert load_worker_config({}, node_file=path, worker="b").value.endpoints.tls is None
    environ = {
        "INFERENCE_SERVER_ENDPOINTS_TLS_CERT_FILE": "/c2",
        "INFERENCE_SERVER_ENDPOINTS_TLS_KEY_FILE": "/k2",
    }
    tls = load_worker_config(environ, node_file=path, worker="b").value.endpoints.tls
    assert tls is not None
    assert tls.cert_file == Path("/c2")


def test_empty_sections_and_merge_keys(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("global:\n  scheduler:\nworkers:\nmodels:\ngpus:\n", encoding="utf-8")
    assert load_worker_config({}, node_file=path).value == WorkerConfig()
    path.write_text(
        "workers:\n  - &one {name: a, hook_threads: 3}\n  - {<<: *one, name: b}\n", encoding="utf-8"
    )
    assert load_worker_config({}, node_file=path, worker="b").value.hook_threads == 3
    path.write_text("# nothing\n", encoding="utf-8")
    assert load_worker_config({}, node_file=path).value == WorkerConfig()


def test_node_config_takes_both_kinds_of_variables() -> None:
    environ = {
        "INFERENCE_SERVER_MODEL_DIRS": "/a:/b",
        "INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "fifo",
        "REACTANT_SUPERVISOR_MAX_RESTARTS": "9",
        "REACTANT_PUBLIC_PORT": "18001",
        "REACTANT_REGISTRY": "registry:8003",
    }
    node = load_node_config(environ)
    assert node.value.model_repo == (Path("/a"), Path("/b"))
    assert node.value.global_.scheduler.discipline == "fifo"
    assert node.value.supervisor.max_restarts == 9
    assert (node.value.public_port, node.value.registry) == (18001, "registry:8003")
    assert node.sources["global.scheduler.discipline"] == "INFERENCE_SERVER_SCHEDULER_DISCIPLINE"
    assert node.sources["model_repo"] == "INFERENCE_SERVER_MODEL_DIRS"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        ("auto", None),
        (2, 2),
        ("2", 2),
        ("0", 0),
        ("1,0", ("1", "0")),
        ("1,", ("1",)),
        ((1, 0), ("1", "0")),
        ("GPU-8f6d9c2e-1111-2222-3333-444455556666", ("GPU-8f6d9c2e-1111-2222-3333-444455556666",)),
        ("MIG-GPU-ab/1/0, GPU-12", ("MIG-GPU-ab/1/0", "GPU-12")),
    ],
)
def test_gpu_selectors_keep_their_text_and_order(given: object, meant: object) -> None:
    assert parse_gpus(given) == meant


@pytest.mark.parametrize("given", [-1, True, 1.5, "", "GPU", (), ("0", "0"), (True,), 5000])
def test_gpu_selectors_that_are_none(given: object) -> None:
    with pytest.raises(ValueError, match=r"accepted is|no device|twice|0 to 1024"):
        parse_gpus(given)


def test_the_yaml_of_a_node_reads_back(node_file: Path, tmp_path: Path) -> None:
    node = load_node_config(
        {"REACTANT_GPUS": "1,0", "INFERENCE_SERVER_HOOK_THREADS": "7"}, node_file=node_file
    ).value
    copy = tmp_path / "copy.yaml"
    copy.write_text(node.to_yaml(), encoding="utf-8")
    assert load_node_config({}, node_file=copy).value == node
    # Only what was set is written, so that entries still take the rest from `global:`.
    assert yaml.safe_load(node.to_yaml())["workers"][0] == {"name": "left", "gpu": 2}


def test_description_names_value_and_source_of_everything(node_file: Path) -> None:
    effective = load_worker_config(
        {"INFERENCE_SERVER_HOOK_THREADS": "7"}, node_file=node_file, worker="right"
    )
    lines = effective.describe().splitlines()
    assert "hook_threads = 7  (INFERENCE_SERVER_HOOK_THREADS)" in lines
    assert f"model_dirs = [/m1, /m2]  ({node_file}:1)" in lines
    assert "endpoints.tls = null  (default)" in lines
    assert f"scheduler.models.heavy.weight = 3.0  ({node_file}:9)" in lines
    node = load_node_config({}, node_file=node_file).describe().splitlines()
    assert f"workers[1].scheduler.discipline = fifo  ({node_file}:17)" in node
    assert f"models.cold = [right, left]  ({node_file}:21)" in node


def test_secrets_are_masked() -> None:
    class Holder(Section):
        token: SecretStr = SecretStr("hunter2")
        tokens: tuple[SecretStr, ...] = (SecretStr("hunter2"),)

    assert "hunter2" not in Effective(Holder(), {}).describe()
    assert "hunter2" not in shown("hunter2", SecretStr)
    assert "hunter2" not in shown(("hunter2",), tuple[SecretStr, ...])


def test_configurations_cannot_be_changed() -> None:
    config = load_worker_config({}).value
    with pytest.raises(ValueError, match="frozen"):
        config.hook_threads = 3
    assert isinstance(load_node_config({}).value, NodeConfig)


@pytest.mark.parametrize(("threads", "cores", "size"), [(0, 4, 4), (0, 64, 16), (0, 0, 1), (3, 64, 3)])
def test_hook_pool_size(threads: int, cores: int, size: int) -> None:
    assert WorkerConfig(hook_threads=threads).hook_pool_size(cores) == size
