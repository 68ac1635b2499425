"""compose.yaml agrees with the deployment contract, with what the code does and with the image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from reactant_core.config import Effective, NodeConfig
from reactant_core.config.load import NODE_VARIABLES, WORKER_VARIABLES, load_node_config
from reactant_supervisor.budget import STOP_BUDGET_SECONDS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose.yaml"
BUILD_VARIABLES = {"REACTANT_GPU", "REACTANT_GPU_VERSION"}
KNOWN_VARIABLES = {*NODE_VARIABLES, *WORKER_VARIABLES, *BUILD_VARIABLES}

MODELS = "/var/lib/reactantserver/models"
CACHE = "/var/cache/reactant-compile"
RUN_DIR = "/run/reactantserver"

SUBSTITUTION = re.compile(r"\$\{([A-Z_]+)(:?-)([^}]*)\}")


def substituted(value: Any) -> Any:
    """`value` as it is where none of the variables in it is set."""
    if isinstance(value, dict):
        return {key: substituted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [substituted(item) for item in value]
    if isinstance(value, str):
        return SUBSTITUTION.sub(lambda match: match[3], value)
    return value


def merged(base: Any, over: Any) -> Any:
    """What Compose makes of a service that extends another: mappings merge, the rest is replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: merged(base.get(key), item) for key, item in over.items()}
    return over


@pytest.fixture(scope="module")
def compose() -> Any:
    return substituted(yaml.safe_load(FILE.read_text()))


@pytest.fixture
def node(compose: Any) -> Any:
    return compose["services"]["node"]


@pytest.fixture
def node_gpu(compose: Any, node: Any) -> Any:
    own = compose["services"]["node-gpu"]
    assert own["extends"] == {"service": "node"}
    return merged(node, own)


def configuration(service: Any) -> Effective[NodeConfig]:
    """What the service's environment means to a supervisor; ConfigError when it is not accepted."""
    return load_node_config(service["environment"])


def mounts(service: Any) -> dict[str, tuple[str, str]]:
    """Path in the container -> source and mode."""
    found = {}
    for volume in service["volumes"]:
        source, target, *mode = volume.split(":")
        found[target] = (source, mode[0] if mode else "rw")
    return found


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)(s|m)", duration)
    assert match is not None, duration
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]


def test_ports_are_those_of_the_contract_and_of_the_defaults(node: Any) -> None:
    assert node["ports"] == ["8001:8001", "8002:8002"]
    config = configuration(node).value
    assert [config.public_port, config.public_metrics_port] == [8001, 8002]


def test_models_are_read_only_where_the_node_looks_for_them(node: Any) -> None:
    assert mounts(node)[MODELS] == ("./bundles", "ro")
    assert "${REACTANTSERVER_MODELS:-./bundles}" in FILE.read_text()
    assert str(configuration(node).value.model_repo[0]) == MODELS
    assert str(load_node_config({}).value.model_repo[0]) == MODELS


def test_compiled_programs_are_in_a_named_volume(compose: Any, node: Any) -> None:
    source, mode = mounts(node)[CACHE]
    assert mode == "rw"
    assert source in compose["volumes"]
    assert str(configuration(node).value.global_.cache_dir) == CACHE


def test_what_a_node_writes_besides_is_in_memory(node: Any) -> None:
    assert node["read_only"] is True
    assert set(node["tmpfs"]) == {"/tmp", RUN_DIR}
    assert str(configuration(node).value.run_dir) == RUN_DIR


def test_a_stop_ends_before_the_container_is_killed(node: Any) -> None:
    assert seconds(node["stop_grace_period"]) == 30
    assert seconds(node["stop_grace_period"]) > STOP_BUDGET_SECONDS


def test_shared_memory_restarts_and_orphans(node: Any) -> None:
    assert node["ipc"] == "host"
    assert node["restart"] == "unless-stopped"
    assert node["init"] is True


def test_a_container_has_no_rights_it_does_not_need(node: Any) -> None:
    assert node["cap_drop"] == ["ALL"]
    assert node["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in node


def test_the_node_without_a_profile_is_a_cpu_node(node: Any) -> None:
    assert "profiles" not in node
    config = configuration(node).value
    assert config.gpus == 0
    assert config.cpu_workers == 2
    assert node["build"]["args"].get("REACTANT_GPU", "cpu") == "cpu"


def test_the_gpu_node_is_granted_devices_and_takes_them_all(node_gpu: Any) -> None:
    from tools.accelerator import choose

    assert node_gpu["profiles"] == ["gpu"]
    [device] = node_gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    config = configuration(node_gpu).value
    assert config.gpus is None
    assert config.global_.runtime.backend == "cuda"
    arguments = node_gpu["build"]["args"]
    assert choose(arguments["REACTANT_GPU"], arguments["REACTANT_GPU_VERSION"], None).extra == "cuda12"


def test_the_gpu_node_is_the_same_node_otherwise(compose: Any, node: Any, node_gpu: Any) -> None:
    own = set(compose["services"]["node-gpu"])
    assert own == {"extends", "profiles", "image", "build", "environment", "deploy"}
    assert node_gpu["image"] != node["image"]
    assert node_gpu["build"]["dockerfile"] == node["build"]["dockerfile"]


@pytest.mark.parametrize("name", ["node", "node-gpu"])
def test_every_variable_of_a_service_is_known(compose: Any, name: str) -> None:
    service = compose["services"][name]
    assert set(service["environment"]) <= KNOWN_VARIABLES
    named = {key for key in service["build"]["args"] if key.startswith(("REACTANT_", "INFERENCE_SERVER_"))}
    assert named <= BUILD_VARIABLES


def test_every_variable_that_compose_reads_is_known_and_explained() -> None:
    read = {match[1] for match in SUBSTITUTION.finditer(FILE.read_text())}
    assert len(read) == FILE.read_text().count("${") == len(SUBSTITUTION.findall(FILE.read_text()))
    assert {name for name in read if not name.startswith("REACTANTSERVER_")} <= KNOWN_VARIABLES
    page = (ROOT / "deploy" / "README.md").read_text()
    assert {name for name in read if f"| `{name}` |" not in page} == set()


def test_compose_and_the_page_name_the_same_defaults() -> None:
    page = dict(
        re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", (ROOT / "deploy/README.md").read_text(), re.MULTILINE)
    )
    file = {match[1]: match[3] for match in SUBSTITUTION.finditer(FILE.read_text()) if match[3]}
    assert page == file
