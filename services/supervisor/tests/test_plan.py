"""What runs on a machine, from configuration, devices and environment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml

from reactant_core.config import ConfigError, load_node_config, load_worker_config
from reactant_core.config.gateway import load_gateway_config
from reactant_supervisor.devices import Devices
from reactant_supervisor.plan import NodePlan, Surroundings, make_plan

CPU = Devices((), "test")
TWO = Devices(("GPU-b", "1"), "test")
LONE = {"REACTANT_CPU_WORKERS": "1"}


def plan(
    environ: dict[str, str],
    devices: Devices = CPU,
    *,
    terminal: bool = False,
    cores: int = 8,
    run_dir: Path = Path("/run/r"),
) -> NodePlan:
    around = Surroundings(environ, "/usr/bin/python3", terminal, cores, run_dir)
    return make_plan(load_node_config(environ), devices, partial(load_gateway_config, environ), around)


def node_file(folder: Path, text: str) -> dict[str, str]:
    file = folder / "node.yaml"
    file.write_text(text)
    return {"REACTANT_NODE_FILE": str(file)}


def test_one_worker_binds_the_public_ports() -> None:
    made = plan({"PATH": "/bin", "INFERENCE_SERVER_MODEL_DIRS": "/models", **LONE})
    (worker,) = made.workers
    assert made.gateway is None
    assert (worker.host, worker.grpc_port, worker.http_port, made.notes) == ("0.0.0.0", 8001, 8002, ())
    assert worker.spec.argv == ("/usr/bin/python3", "-m", "reactant_worker")
    assert worker.spec.env == {
        "PATH": "/bin",
        "INFERENCE_SERVER_MODEL_DIRS": "/models",
        "REACTANT_CPU_WORKERS": "1",
        "REACTANT_NODE_FILE": "/run/r/node.yaml",
        "INFERENCE_SERVER_ENDPOINTS_PORT": "8001",
        "INFERENCE_SERVER_ENDPOINTS_METRICS_PORT": "8002",
        "INFERENCE_SERVER_NAME": "worker0",
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0",
        "INFERENCE_SERVER_HOOK_THREADS": "8",
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu",
        "NPROC": "8",
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
    }


def test_two_workers_stand_behind_a_gateway_on_the_public_ports() -> None:
    made = plan({}, TWO)
    assert [(w.name, w.host, w.grpc_port, w.http_port, w.device) for w in made.workers] == [
        ("worker0", "127.0.0.1", 8080, 9100, "GPU-b"),
        ("worker1", "127.0.0.1", 8081, 9101, "1"),
    ]
    for worker in made.workers:
        assert worker.spec.env["CUDA_VISIBLE_DEVICES"] == worker.device
        assert worker.spec.env["INFERENCE_SERVER_RUNTIME_DEVICE_ORDINAL"] == "0"
        assert worker.spec.env["INFERENCE_SERVER_ENDPOINTS_HOST"] == "127.0.0.1"
        assert worker.spec.env["INFERENCE_SERVER_LAMEDUCK_SECONDS"] == "0"
        assert worker.spec.env["INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET"] == f"/run/r/{worker.name}.sock"
        assert "INFERENCE_SERVER_RUNTIME_BACKEND" not in worker.spec.env
    gateway = made.gateway
    assert gateway is not None
    assert (gateway.host, gateway.grpc_port, gateway.http_port) == ("0.0.0.0", 8001, 8002)
    assert gateway.spec.argv == ("/usr/bin/python3", "-m", "reactant_gateway")
    assert gateway.spec.hold_variable == "REACTANT_GATEWAY_HOLD_FD"
    given = {name: value for name, value in gateway.spec.env.items() if name.startswith("REACTANT_GATEWAY")}
    assert given == {
        "REACTANT_GATEWAY_WORKERS": "unix:/run/r/worker0.sock,unix:/run/r/worker1.sock",
        "REACTANT_GATEWAY_METRICS_ENDPOINTS": "127.0.0.1:9100,127.0.0.1:9101",
        "REACTANT_GATEWAY_WORKER_NAMES": "worker0,worker1",
        "REACTANT_GATEWAY_LISTEN_HOST": "0.0.0.0",
        "REACTANT_GATEWAY_LISTEN_PORT": "8001",
        "REACTANT_GATEWAY_LISTEN_METRICS_PORT": "8002",
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0",
    }
    assert load_gateway_config(gateway.spec.env).value.names == ("worker0", "worker1")
    assert "CUDA_VISIBLE_DEVICES" not in gateway.spec.env


def test_a_socket_path_that_is_too_long_leaves_tcp() -> None:
    made = plan({}, TWO, run_dir=Path("/" + "x" * 100))
    assert made.gateway is not None
    assert made.gateway.spec.env["REACTANT_GATEWAY_WORKERS"] == "127.0.0.1:8080,127.0.0.1:8081"
    assert "INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET" not in made.workers[0].spec.env


def test_without_unix_sockets_the_gateway_goes_over_tcp() -> None:
    made = plan({"REACTANT_UNIX_SOCKETS": "false"}, TWO)
    assert made.gateway is not None
    assert made.gateway.spec.env["REACTANT_GATEWAY_WORKERS"] == "127.0.0.1:8080,127.0.0.1:8081"
    assert "INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET" not in made.workers[0].spec.env


def test_a_cpu_node_has_the_workers_it_is_told() -> None:
    assert len(plan({}).workers) == 2
    made = plan({"REACTANT_CPU_WORKERS": "3"})
    assert [worker.name for worker in made.workers] == ["worker0", "worker1", "worker2"]
    assert {worker.spec.env["INFERENCE_SERVER_RUNTIME_BACKEND"] for worker in made.workers} == {"cpu"}
    assert all("CUDA_VISIBLE_DEVICES" not in worker.spec.env for worker in made.workers)


@pytest.mark.parametrize(
    ("environ", "workers", "cores", "threads"),
    [
        ({}, 2, 8, "4"),
        ({}, 3, 8, "2"),
        ({}, 3, 2, "1"),
        ({}, 2, 128, "16"),
        ({"REACTANT_WORKER_THREADS": "40"}, 2, 8, "40"),
    ],
)
def test_cores_are_shared_out(environ: dict[str, str], workers: int, cores: int, threads: str) -> None:
    for worker in plan({"REACTANT_CPU_WORKERS": str(workers), **environ}, cores=cores).workers:
        assert worker.spec.env["NPROC"] == threads
        assert worker.spec.env["OMP_NUM_THREADS"] == threads
        assert worker.spec.env["INFERENCE_SERVER_HOOK_THREADS"] == threads


def test_thread_counts_of_the_user_stay_unless_the_node_has_one_of_its_own() -> None:
    own = {"OMP_NUM_THREADS": "3", "INFERENCE_SERVER_HOOK_THREADS": "5"}
    env = plan(own).workers[0].spec.env
    assert (env["OMP_NUM_THREADS"], env["NPROC"], env["INFERENCE_SERVER_HOOK_THREADS"]) == ("3", "4", "5")
    env = plan({**own, "REACTANT_WORKER_THREADS": "2"}).workers[0].spec.env
    assert (env["OMP_NUM_THREADS"], env["NPROC"], env["INFERENCE_SERVER_HOOK_THREADS"]) == ("2", "2", "5")


def test_role_workers_listens_for_others_and_has_no_gateway() -> None:
    made = plan({"REACTANT_ROLE": "workers"})
    assert made.gateway is None
    assert [(w.host, w.grpc_port, w.http_port) for w in made.workers] == [
        ("0.0.0.0", 8080, 9100),
        ("0.0.0.0", 8081, 9101),
    ]
    for worker in made.workers:
        assert "INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET" not in worker.spec.env
        assert "INFERENCE_SERVER_LAMEDUCK_SECONDS" not in worker.spec.env
    (lone,) = plan({"REACTANT_ROLE": "workers", **LONE}).workers
    assert (lone.grpc_port, lone.http_port) == (8080, 9100)


def test_role_gateway_is_one_process_with_endpoints_of_its_own() -> None:
    made = plan(
        {
            "REACTANT_ROLE": "gateway",
            "REACTANT_GATEWAY_WORKERS": "a:1,b:2",
            "REACTANT_GATEWAY_LISTEN_PORT": "7001",
            "REACTANT_GATEWAY_LISTEN_HOST": "127.0.0.1",
        }
    )
    assert made.workers == ()
    assert made.gateway is not None
    assert (made.gateway.host, made.gateway.grpc_port, made.gateway.http_port) == ("127.0.0.1", 7001, 8002)
    assert made.gateway.spec.env["REACTANT_GATEWAY_WORKERS"] == "a:1,b:2"
    assert made.gateway.spec.hold_variable is None
    assert made.gateway.lameduck_seconds == 2.0
    assert "REACTANT_NODE_FILE" not in made.gateway.spec.env


def test_the_nodes_public_port_counts_over_the_gateways() -> None:
    both = {"REACTANT_GATEWAY_LISTEN_PORT": "7001", "REACTANT_PUBLIC_PORT": "9001"}
    made = plan(both)
    assert made.gateway is not None
    assert made.gateway.spec.env["REACTANT_GATEWAY_LISTEN_PORT"] == "9001"


def test_a_gateway_file_owns_the_endpoints(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yml"
    file.write_text("endpoints: [127.0.0.1:8080, other:8080]\nlameduck_seconds: 1.5\n")
    made = plan({"REACTANT_GATEWAY_FILE": str(file)})
    assert made.gateway is not None
    assert "REACTANT_GATEWAY_WORKERS" not in made.gateway.spec.env
    assert made.gateway.lameduck_seconds == 1.5
    assert "REACTANT_GATEWAY_LAMEDUCK_SECONDS" not in made.gateway.spec.env
    assert made.notes == ()
    file.write_text("scheduling: {mode: least_outstanding}\n")
    (note,) = plan({"REACTANT_GATEWAY_FILE": str(file)}).notes
    assert f"{file} owns the list of endpoints and lists none" in note


def test_endpoints_of_the_user_are_left_alone() -> None:
    made = plan({"REACTANT_GATEWAY_WORKERS": "a:1"})
    assert made.gateway is not None
    assert made.gateway.spec.env["REACTANT_GATEWAY_WORKERS"] == "a:1"
    assert "REACTANT_GATEWAY_WORKER_NAMES" not in made.gateway.spec.env


def test_a_gateways_faults_are_the_nodes() -> None:
    with pytest.raises(ConfigError, match="REACTANT_GATEWAY_SCHEDULING_MODE"):
        plan({"REACTANT_GATEWAY_SCHEDULING_MODE": "random"})
    plan({"REACTANT_GATEWAY_SCHEDULING_MODE": "random", **LONE})


def test_limits_and_times_of_the_node_are_the_gateways() -> None:
    environ = {
        "INFERENCE_SERVER_GRPC_MAX_RECV_MSG_BYTES": "1048576",
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "3",
        "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS": "7",
        "INFERENCE_SERVER_LOG_LEVEL": "debug",
    }
    made = plan(environ)
    assert made.gateway is not None
    config = load_gateway_config(made.gateway.spec.env).value
    assert config.grpc.max_recv_msg_bytes == 1048576
    assert (config.lameduck_seconds, config.drain_timeout_seconds) == (3.0, 7.0)
    assert config.logging.level == "debug"
    # What has passed on the way out has to pass on the way through, and only once.
    assert made.workers[0].spec.env["INFERENCE_SERVER_LAMEDUCK_SECONDS"] == "0"


def test_children_do_not_speak_to_systemd() -> None:
    environ = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2"}
    made = plan(environ)
    assert made.gateway is not None
    for env in (made.gateway.spec.env, *(worker.spec.env for worker in made.workers)):
        assert not environ.keys() & env.keys()


def test_entries_are_followed_and_the_workers_read_the_same(tmp_path: Path) -> None:
    environ = node_file(
        tmp_path,
        """
        model_repo: /models
        global: {hook_threads: 3, scheduler: {max_queue_depth: 7}, endpoints: {host: 10.0.0.1}}
        workers:
          - {name: vision, port: 7000, gpu: 1, scheduler: {discipline: fifo}}
          - {name: text, gpu: GPU-zz, endpoints: {metrics_port: 7100, max_concurrent_requests: 9}}
          - {name: small, runtime: {backend: cpu}}
          - {name: last, gpu: 0}
        models: {minilm: [text]}
        """,
    )
    made = plan(environ, TWO, run_dir=tmp_path)
    assert [(w.name, w.grpc_port, w.http_port, w.device) for w in made.workers] == [
        ("vision", 7000, 9100, "1"),
        ("text", 8081, 7100, "GPU-zz"),
        ("small", 8082, 9102, None),
        ("last", 8083, 9103, "GPU-b"),
    ]
    written = tmp_path / "written.yaml"
    written.write_text(made.node_file)
    for worker in made.workers:
        # From the file alone, and as the process gets it.
        for env in (
            {"REACTANT_NODE_FILE": str(written)},
            {**worker.spec.env, "REACTANT_NODE_FILE": str(written)},
        ):
            config = load_worker_config(env, worker=worker.name).value
            assert config.endpoints.port == worker.grpc_port
            assert config.endpoints.metrics_port == worker.http_port
            assert config.endpoints.host == "127.0.0.1"
            assert config.endpoints.unix_socket == worker.unix_socket
            assert config.runtime.device_ordinal == 0
            assert config.runtime.backend == ("cpu" if worker.device is None else "auto")
            assert config.model_dirs == (Path("/models"),)
            assert config.hook_threads == 3
            assert config.scheduler.max_queue_depth == 7
            assert config.scheduler.discipline == ("fifo" if worker.name == "vision" else "fair")
            assert config.endpoints.max_concurrent_requests == (9 if worker.name == "text" else 1024)
            pinned = config.scheduler.model("minilm").residency
            assert pinned == ("device" if worker.name == "text" else None)


def test_defaults_stay_out_of_the_written_file(tmp_path: Path) -> None:
    made = plan({"REACTANT_CPU_WORKERS": "1"})
    assert yaml.safe_load(made.node_file) == {
        "cpu_workers": 1,
        "gpus": 0,
        "workers": [
            {
                "name": "worker0",
                "port": 8001,
                "endpoints": {"port": 8001, "metrics_port": 8002},
                "lameduck_seconds": 0,
                "hook_threads": 8,
                "runtime": {"backend": "cpu"},
            }
        ],
    }
    environ = node_file(
        tmp_path, "global: {scheduler: {models: {m.x: {weight: 2.0}}}, lameduck_seconds: 2}\n"
    )
    assert yaml.safe_load(plan(environ).node_file)["global"] == {
        "lameduck_seconds": 2.0,
        "scheduler": {"models": {"m.x": {"weight": 2.0}}},
    }


def test_the_written_file_holds_what_the_environment_said(tmp_path: Path) -> None:
    made = plan({"INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "edf", "INFERENCE_SERVER_MODEL_DIRS": "/a:/b"}, TWO)
    file = tmp_path / "written.yaml"
    file.write_text(made.node_file)
    config = load_worker_config({"REACTANT_NODE_FILE": str(file)}, worker="worker1").value
    assert config.scheduler.discipline == "edf"
    assert config.model_dirs == (Path("/a"), Path("/b"))
    assert load_node_config({"REACTANT_NODE_FILE": str(file)}).value.gpus == ("GPU-b", "1")


@pytest.mark.parametrize(
    ("entries", "devices", "said"),
    [
        (
            "[{name: a}, {name: b}, {name: c}]",
            TWO,
            "workers[2] (DIR/node.yaml:1): device 2 is asked for, but there",
        ),
        (
            "[{name: a, gpu: 5}]",
            TWO,
            "workers[0].gpu (DIR/node.yaml:1): device 5 is asked for, but there are 2",
        ),
        (
            "[{name: a, gpu: 0}]",
            CPU,
            "workers[0].gpu (DIR/node.yaml:1): device 0 is asked for, but there are 0",
        ),
    ],
)
def test_entries_that_ask_for_devices_there_are_not(
    tmp_path: Path, entries: str, devices: Devices, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        plan(node_file(tmp_path, f"workers: {entries}\n"), devices)
    assert said.replace("DIR", str(tmp_path)) in str(raised.value)


def test_a_lameduck_time_that_was_set_stays() -> None:
    env = plan({"INFERENCE_SERVER_LAMEDUCK_SECONDS": "3", **LONE}).workers[0].spec.env
    assert env["INFERENCE_SERVER_LAMEDUCK_SECONDS"] == "3"


def test_a_lameduck_time_of_the_workers_entry_stays(tmp_path: Path) -> None:
    environ = node_file(tmp_path, "workers:\n  - {name: a, lameduck_seconds: 1.5}\n")
    (worker,) = plan(environ).workers
    assert "INFERENCE_SERVER_LAMEDUCK_SECONDS" not in worker.spec.env
    assert "lameduck_seconds: 1.5" in plan(environ).node_file
    environ["INFERENCE_SERVER_LAMEDUCK_SECONDS"] = "3"
    assert plan(environ).workers[0].spec.env["INFERENCE_SERVER_LAMEDUCK_SECONDS"] == "3"


@pytest.mark.parametrize(
    ("workers", "lameduck", "drain", "named"),
    [
        ("1", "10", "20", ("lameduck_seconds (10 s)", "drain_timeout_seconds (20 s)", "27 s")),
        ("1", "", "25.5", ("lameduck_seconds (0 s)", "drain_timeout_seconds (25.5 s)", "27 s")),
        ("3", "3", "20", ("the gateway's lameduck_seconds (3 s)", "(20 s)", "22 s of a stop")),
    ],
)
def test_a_stop_that_does_not_fit_into_its_budget_is_said(
    workers: str, lameduck: str, drain: str, named: tuple[str, ...]
) -> None:
    (note,) = plan(
        {
            "INFERENCE_SERVER_LAMEDUCK_SECONDS": lameduck,
            "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS": drain,
            "REACTANT_CPU_WORKERS": workers,
        }
    ).notes
    assert all(part in note for part in named)


@pytest.mark.parametrize(
    ("workers", "lameduck", "drain"), [("1", "2", ""), ("1", "", "23"), ("1", "3", "20"), ("2", "2", "20")]
)
def test_a_stop_that_fits_is_no_note(workers: str, lameduck: str, drain: str) -> None:
    environ = {
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": lameduck,
        "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS": drain,
        "REACTANT_CPU_WORKERS": workers,
    }
    assert plan(environ).notes == ()


def test_the_budget_is_held_against_the_workers_own_entry(tmp_path: Path) -> None:
    (note,) = plan(node_file(tmp_path, "workers:\n  - {name: a, drain_timeout_seconds: 40}\n")).notes
    assert "drain_timeout_seconds (40 s)" in note


def test_ports_and_host_can_be_set() -> None:
    made = plan(
        {
            "REACTANT_PUBLIC_PORT": "9001",
            "REACTANT_PUBLIC_METRICS_PORT": "9002",
            "REACTANT_BASE_PORT": "7000",
            "REACTANT_METRICS_BASE_PORT": "7100",
            "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.2",
        }
    )
    assert [(item.purpose, item.host, item.port) for item in made.listeners] == [
        ("gRPC", "127.0.0.2", 9001),
        ("HTTP", "127.0.0.2", 9002),
        ("worker0 gRPC", "127.0.0.1", 7000),
        ("worker0 HTTP", "127.0.0.1", 7100),
        ("worker1 gRPC", "127.0.0.1", 7001),
        ("worker1 HTTP", "127.0.0.1", 7101),
    ]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (
            {"REACTANT_PUBLIC_METRICS_PORT": "8001", **LONE},
            "REACTANT_PUBLIC_METRICS_PORT: 8001 (HTTP) is also",
        ),
        ({"REACTANT_BASE_PORT": "8000"}, "REACTANT_BASE_PORT: 8001 (worker1 gRPC) is also the port for gRPC"),
        ({"REACTANT_METRICS_BASE_PORT": "8079"}, "8080 (worker1 HTTP) is also the port for worker0 gRPC"),
        ({"REACTANT_BASE_PORT": "65535"}, "65536 would be a port"),
    ],
)
def test_a_port_is_for_one_listener(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan(environ)
    assert said in str(raised.value)


def test_a_workers_own_port_is_not_followed_and_that_is_said() -> None:
    (note,) = plan({"INFERENCE_SERVER_ENDPOINTS_PORT": "7000", **LONE}).notes
    assert "INFERENCE_SERVER_ENDPOINTS_PORT=7000 is not followed" in note
    assert "REACTANT_PUBLIC_PORT (8001)" in note
    made = plan({"INFERENCE_SERVER_ENDPOINTS_PORT": "7000"})
    assert [worker.spec.env["INFERENCE_SERVER_ENDPOINTS_PORT"] for worker in made.workers] == ["8080", "8081"]


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, False, {}),
        ({}, True, {"REACTANT_LOG_FORMAT": "console", "FORCE_COLOR": "1"}),
        ({"NO_COLOR": "1"}, True, {"REACTANT_LOG_FORMAT": "console"}),
        (
            {"REACTANT_LOG_FORMAT": "json"},
            True,
            {"REACTANT_LOG_FORMAT": "json", "FORCE_COLOR": "1"},
        ),
    ],
)
def test_children_write_for_who_reads(
    environ: dict[str, str], terminal: bool, expected: dict[str, str]
) -> None:
    env = plan(environ, terminal=terminal).workers[0].spec.env
    assert {k: v for k, v in env.items() if k in ("REACTANT_LOG_FORMAT", "FORCE_COLOR")} == expected


def test_the_registrys_role_comes_later() -> None:
    with pytest.raises(ConfigError, match=r"role \(REACTANT_ROLE\): 'registry' is a role of a later version"):
        plan({"REACTANT_ROLE": "registry"})
