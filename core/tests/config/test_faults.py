"""Everything wrong is said at once: key, place, value, what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.config import ConfigError, load_node_config, load_worker_config
from reactant_core.config.faults import Fault


def faults(
    environ: dict[str, str], text: str | None = None, tmp_path: Path | None = None
) -> dict[str, Fault]:
    """The faults of loading, by key."""
    node_file = None
    if text is not None:
        assert tmp_path is not None
        node_file = tmp_path / "node.yaml"
        node_file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_worker_config(environ, node_file=node_file)
    found = {fault.key: fault for fault in caught.value.faults}
    assert len(found) == len(caught.value.faults)
    assert all(key in str(caught.value) for key in found)
    return found


def test_faults_of_file_and_environment_come_together(tmp_path: Path) -> None:
    text = """\
base_port: 70000
publik_port: 1
global:
  scheduler:
    discipline: fifoo
    max_queue_depth: "many"
  endpoints:
    port: true
  runtime: 5
workers:
  - name: "a b"
  - port: 9000
models:
  m: worker0
"""
    environ = {
        "INFERENCE_SERVER_RUNTIME_MEM_FRACTION": "1.5",
        "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPHT": "3",
        "REACTANT_PUBLIC_PORT": "0",
    }
    found = faults(environ, text, tmp_path)
    assert set(found) == {
        "base_port",
        "publik_port",
        "global.scheduler.discipline",
        "global.scheduler.max_queue_depth",
        "global.endpoints.port",
        "global.runtime",
        "workers[0].name",
        "workers[1].name",
        "models.m",
        "INFERENCE_SERVER_RUNTIME_MEM_FRACTION",
        "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPHT",
        "REACTANT_PUBLIC_PORT",
    }
    assert found["base_port"].problem == "70000; accepted is a whole number from 1 up to 65535"
    assert found["base_port"].source.endswith("node.yaml:1")
    assert found["publik_port"].suggestion == "public_port"
    assert found["global.scheduler.discipline"].problem == "'fifoo'; accepted is fair, fifo or edf"
    assert found["global.scheduler.discipline"].suggestion == "fifo"
    assert found["global.scheduler.discipline"].source.endswith("node.yaml:5")
    assert found["global.endpoints.port"].problem.startswith("true; accepted is a whole number")
    assert "a mapping with keys out of backend" in found["global.runtime"].problem
    assert found["workers[1].name"].problem.startswith("is missing")
    assert found["workers[1].name"].source.endswith("node.yaml:12")
    assert (
        found["INFERENCE_SERVER_RUNTIME_MEM_FRACTION"].problem
        == "'1.5'; accepted is a number above 0 up to 1"
    )
    assert (
        found["INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPHT"].suggestion
        == "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH"
    )


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [
        ("INFERENCE_SERVER_ENDPOINTS_PORT", "0", "from 1 up to 65535"),
        ("INFERENCE_SERVER_ENDPOINTS_PORT", "65536", "from 1 up to 65535"),
        ("INFERENCE_SERVER_ENDPOINTS_PORT", "80a", "whole number"),
        ("INFERENCE_SERVER_RUNTIME_PREALLOCATE", "maybe", "true or false"),
        ("INFERENCE_SERVER_RUNTIME_MEM_FRACTION", "nan", "a number above 0"),
        ("INFERENCE_SERVER_RUNTIME_MEM_FRACTION", "0", "a number above 0"),
        ("INFERENCE_SERVER_LAMEDUCK_SECONDS", "inf", "a number from 0"),
        ("INFERENCE_SERVER_LAMEDUCK_SECONDS", "-1", "a number from 0"),
        ("INFERENCE_SERVER_MODEL_POLL_SECONDS", "0.01", "a number"),
        ("INFERENCE_SERVER_RUNTIME_SHARED_HOST_WEIGHTS_MODE", "999", "octal"),
        ("INFERENCE_SERVER_GRPC_MAX_RECV_MSG_BYTES", "2147483648", "2147483647"),
        ("INFERENCE_SERVER_NAME", "a/b", "letters"),
        ("INFERENCE_SERVER_LOG_LEVEL", "loud", "debug, info"),
        ("REACTANT_GPUS", "0,junk", "'junk' is no device"),
        ("REACTANT_GPUS", "-1", "'-1' is no device"),
        ("REACTANT_GPUS", "1,1", "listed twice"),
        ("REACTANT_ROLE", "worker", "all, workers"),
        ("REACTANT_REGISTRY", "nowhere", "host:port"),
    ],
)
def test_values_of_variables_out_of_range(variable: str, value: str, accepted: str) -> None:
    found = faults({variable: value})
    assert list(found) == [variable]
    assert value in found[variable].problem
    assert accepted in found[variable].problem


def test_unknown_variables_name_the_near_one() -> None:
    found = faults(
        {"INFERENCE_SERVER_ENDPOINT_PORT": "1", "INFERENCE_SERVER_XYZZY": "1", "REACTANT_GPUSS": "1"}
    )
    assert found["INFERENCE_SERVER_ENDPOINT_PORT"].suggestion == "INFERENCE_SERVER_ENDPOINTS_PORT"
    assert found["INFERENCE_SERVER_XYZZY"].suggestion is None
    assert found["REACTANT_GPUSS"].suggestion == "REACTANT_GPUS"


def test_variables_of_others_are_left_alone() -> None:
    environ = {
        "REACTANT_GATEWAY_SCHEDULING_MODE": "lpt_packing",
        "REACTANT_REGISTRY_REDIS_URL": "redis://somewhere",
        "REACTANT_LOG_FORMAT": "json",
        "REACTANT_GPU": "cuda",
        "REACTANT_GPU_VERSION": "13",
        "REACTANT_SOMETHING_ELSE_ALTOGETHER": "1",
        "REACTANTSERVER_MODELS": "./bundles",
    }
    assert load_worker_config(environ).value == load_worker_config({}).value


def test_unknown_key_deep_in_a_model(tmp_path: Path) -> None:
    text = "global:\n  scheduler:\n    models:\n      m:\n        wieght: 2\n      n: {max_batch_size: 0}\n"
    found = faults({}, text, tmp_path)
    assert found["global.scheduler.models.m.wieght"].suggestion == "weight"
    assert found["global.scheduler.models.m.wieght"].source.endswith(":5")
    assert "from 1" in found["global.scheduler.models.n.max_batch_size"].problem


def test_an_incomplete_tls_section_names_what_is_missing(tmp_path: Path) -> None:
    found = faults({}, "global:\n  endpoints:\n    tls:\n      cert_file: /a.pem\n", tmp_path)
    assert found["global.endpoints.tls.key_file"].problem == "is missing; accepted is a path"
    # Half a section from the environment is no better.
    found = faults({"INFERENCE_SERVER_ENDPOINTS_TLS_CERT_FILE": "/a.pem"})
    assert "is missing" in found["endpoints.tls.key_file"].problem


def test_contradictions_between_workers(tmp_path: Path) -> None:
    text = "workers:\n  - {name: a}\n  - {name: a, port: 8080}\nmodels:\n  m: [a, bb]\n"
    found = faults({}, text, tmp_path)
    assert set(found) == {"workers[1].name", "workers[1].port", "models.m[1]"}
    assert "accepted are a" in found["models.m[1]"].problem


@pytest.mark.parametrize(
    ("text", "key", "problem", "line"),
    [
        ("base_port: 1\nrole: [all\n", "", "not YAML", ":3:1"),
        ("- 1\n- 2\n", "", "a list", ":1"),
        ("just text\n", "", "a single value", ":1"),
        ("base_port: 1\nbase_port: 2\n", "base_port", "given twice, first in line 1", ":2"),
        ("global: &x\n  global: *x\n", "global.global", "contains itself", ":1"),
        ("? [1, 2]\n: 3\n", "", "not a plain word", ":1"),
        ("role: !!python/object:os.system {}\n", "role", "the tag", ":1"),
        ("role: !!python/name:os.system\n", "role", "could not determine a constructor", ":1"),
        ("role: 2026-02-31\n", "role", "'2026-02-31'", ":1"),
    ],
)
def test_faults_of_the_text(tmp_path: Path, text: str, key: str, problem: str, line: str) -> None:
    found = faults({}, text, tmp_path)
    assert len(found) == 1
    fault = next(iter(found.values()))
    assert key in fault.key
    assert problem in fault.problem
    assert fault.source.endswith("node.yaml" + line)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for environ, node_file in (
        ({"REACTANT_NODE_FILE": str(tmp_path / "no.yaml")}, None),
        ({}, tmp_path / "no.yaml"),
    ):
        with pytest.raises(ConfigError, match=r"no\.yaml cannot be read: no such file"):
            load_node_config(environ, node_file=node_file)
    (tmp_path / "latin.yaml").write_bytes(b"role: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_node_config({"REACTANT_NODE_FILE": str(tmp_path / "latin.yaml")})
    with pytest.raises(ConfigError, match="is a directory"):
        load_node_config({"REACTANT_NODE_FILE": str(tmp_path)})


def test_long_values_are_cut() -> None:
    fault = faults({"INFERENCE_SERVER_LOG_LEVEL": "x" * 5000})["INFERENCE_SERVER_LOG_LEVEL"]
    assert len(fault.problem) < 250
