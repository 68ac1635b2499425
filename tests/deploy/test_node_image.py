"""deploy/docker/node.Dockerfile builds from what is there, and into what compose.yaml and the code expect."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from reactant_core.config.load import WORKER_VARIABLES, load_node_config

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "docker" / "node.Dockerfile"
READY = ROOT / "deploy" / "docker" / "ready.py"
SERVICES = {"reactant-supervisor", "reactant-worker", "reactant-gateway"}


def instructions() -> list[tuple[str, str]]:
    """Keyword and rest of every instruction, continuation lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


def of(keyword: str) -> list[str]:
    return [rest for word, rest in instructions() if word == keyword]


def project(path: Path) -> Any:
    return tomllib.loads((path / "pyproject.toml").read_text())


MEMBERS: dict[str, str] = {
    project(ROOT / folder)["project"]["name"]: folder
    for folder in project(ROOT)["tool"]["uv"]["workspace"]["members"]
}
COPIED = [
    (source, target)
    for *sources, target in (shlex.split(rest) for rest in of("COPY"))
    if not sources[0].startswith("--from")
    for source in sources
]


def closure(names: set[str]) -> set[str]:
    """The workspace's own packages among what `names` need."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        needs = project(ROOT / MEMBERS[name])["project"].get("dependencies", [])
        waiting |= {word for word in (re.split(r"[\[<>=! ]", need)[0] for need in needs) if word in MEMBERS}
        waiting -= found
    return found


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps `path` out: the last pattern that matches it or a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        candidates = parts if "**/" in line else above
        same_depth = (c for c in candidates if "**/" in line or c.count("/") == pattern.count("/"))
        if line and not line.startswith("#") and any(fnmatch(c, pattern) for c in same_depth):
            out = not line.startswith("!")
    return out


def test_the_entrypoint_and_every_service_are_console_scripts_of_what_is_installed() -> None:
    [entrypoint] = of("ENTRYPOINT")
    assert json.loads(entrypoint) == ["reactant-supervisor"]
    installed = set(re.findall(r"--package (\S+)", FILE.read_text()))
    assert installed == SERVICES
    scripts = {entry.name for entry in entry_points(group="console_scripts")}
    declared = {s for name in installed for s in project(ROOT / MEMBERS[name])["project"].get("scripts", {})}
    assert json.loads(entrypoint)[0] in declared & scripts
    assert declared >= SERVICES


def test_the_dependency_layer_has_every_project_of_the_workspace() -> None:
    projects = {source for source, _ in COPIED if source.endswith("/pyproject.toml")}
    assert projects == {f"{folder}/pyproject.toml" for folder in MEMBERS.values()}
    assert all(
        target == source.removesuffix("pyproject.toml") for source, target in COPIED if source in projects
    )


def test_the_sources_of_the_services_and_of_all_they_need_are_copied() -> None:
    folders = {source for source, _ in COPIED if (ROOT / source).is_dir()}
    needed = {MEMBERS[name].split("/")[0] for name in closure(SERVICES)}
    assert folders == needed


@pytest.mark.parametrize("source", [source for source, _ in COPIED])
def test_what_is_copied_is_there_and_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    assert not ignored(source)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".env",
        ".venv/bin/python",
        "bundles/minilm/weights.safetensors",
        "core/src/reactant_core/__pycache__/x.pyc",
        "core/tests/test_x.py",
        "examples/src/reactant_examples/demo.py",
        "services/worker/tests/test_x.py",
        "tests/conftest.py",
    ],
)
def test_what_no_image_needs_stays_out_of_the_build(path: str) -> None:
    assert ignored(path)


def test_it_runs_as_the_user_that_compose_names() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    [add] = [rest for rest in of("RUN") if "useradd" in rest]
    name = of("USER")[-1]
    uid = re.search(rf"useradd --uid (\d+) --user-group .* {name}\b", add)
    assert uid is not None
    assert int(uid[1]) >= 1000
    assert compose["services"]["node"]["user"] == f"${{REACTANTSERVER_USER:-{uid[1]}:{uid[1]}}}"


def test_ports_and_folders_are_the_configuration_s() -> None:
    config = load_node_config({}).value
    assert of("EXPOSE") == [f"{config.public_port} {config.public_metrics_port}"]
    environment = dict(re.findall(r"([A-Z_]+)=(\S+)", of("ENV")[-1]))
    assert environment["INFERENCE_SERVER_CACHE_DIR"] == "/var/cache/reactant-compile"
    assert {name for name in environment if name.startswith("INFERENCE_SERVER_")} <= set(WORKER_VARIABLES)
    [made] = [rest for rest in of("RUN") if "mkdir" in rest]
    folders = {environment["INFERENCE_SERVER_CACHE_DIR"], str(config.run_dir), str(config.model_repo[0])}
    assert folders <= set(made.split())


def test_build_arguments_of_compose_are_those_of_the_image() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    taken = {rest.partition("=")[0] for rest in of("ARG")}
    for service in compose["services"].values():
        assert set(service["build"]["args"]) <= taken
    assert (ROOT / compose["services"]["node"]["build"]["dockerfile"]) == FILE


def test_the_label_names_this_version() -> None:
    assert f"VERSION={project(ROOT)['project']['version']}" in of("ARG")


@pytest.mark.parametrize(
    ("gpu", "version", "extra"), [("cpu", "", ""), ("cuda", "", "cuda12"), ("cuda", "13.1", "cuda13")]
)
def test_the_build_chooses_jax_as_set_up_does(gpu: str, version: str, extra: str) -> None:
    assert "REACTANT_GPU=cpu" in of("ARG")
    [program] = re.findall(r"extra=\$\(python3 -c '([^']+)'", FILE.read_text())
    done = subprocess.run(
        [sys.executable, "-c", program, gpu, version], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == extra


def test_both_health_checks_run_the_same_copied_file() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    command = json.loads(of("HEALTHCHECK")[0].partition("CMD ")[2])
    assert compose["services"]["node"]["healthcheck"]["test"] == ["CMD", *command]
    assert (str(READY.relative_to(ROOT)), command[-1]) in COPIED


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server whose `/readyz`, and nothing else, answers `status`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b'{"ready": "?"}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(READY)],
        env={"REACTANT_PUBLIC_METRICS_PORT": str(port)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_a_container_is_healthy_when_its_node_is_ready(status: int, code: int) -> None:
    with answering(status) as port:
        done = ask(port)
    assert done.returncode == code, done.stderr
    assert done.stdout == f'{status} {{"ready": "?"}}\n'


def test_a_container_where_nothing_answers_is_unhealthy() -> None:
    with answering(200) as port:
        pass
    done = ask(port)
    assert done.returncode == 1
    assert f"no answer on port {port}" in done.stdout
    assert not done.stderr
