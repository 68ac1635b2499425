"""The contracts of .importlinter, tried on a model of the workspace with faults planted in it."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ALLOWED = {
    "reactant_policy.pure": "import math, numpy, dataclasses",
    "reactant_core.rpc": "import pygrpc_native, reactant_policy.pure",
    "reactant_core.fleet": "import redis, reactant_proto",
    "reactant_programs.compile": "import jax, jaxlib, reactant_core",
    "reactant_core.bundle": "import numpy",
    "reactant_core.config": "import reactant_core.bundle",
    "reactant_core.lifecycle": "import asyncio",
    "reactant_core.logs": "import logging",
    "reactant_core.web": "import asyncio",
    "reactant_worker.app": "import jax, reactant_programs.compile, reactant_worker.rpc, asyncio",
    "reactant_worker.rpc": "import reactant_worker.engine",
    "reactant_worker.engine": "import threading",
    "reactant_gateway.h2": "import ngh2, reactant_core.rpc",
    "reactant_gateway.forward": "import reactant_gateway.h2",
    "reactant_supervisor.devices": "import asyncio",
    "reactant_supervisor.plan": "import reactant_supervisor.devices",
    "reactant_registry.store": "import redis",
    "reactant_examples.build": "import reactant_export, jax",
}

# contract of .importlinter -> planted module, its import, and the two ends that the report must name
PLANTED = {
    "grounds": [
        ("reactant_gateway.bad_sideways", "import reactant_worker", "reactant_worker"),
        ("reactant_cli.bad_sideways", "import reactant_supervisor", "reactant_supervisor"),
        ("reactant_export.bad_sideways", "import reactant_worker", "reactant_worker"),
        ("reactant_core.bad_upwards", "import reactant_registry", "reactant_registry"),
        ("reactant_proto.bad_upwards", "import reactant_core", "reactant_core"),
        ("reactant_policy.bad_sideways", "import reactant_proto", "reactant_proto"),
    ],
    "examples": [("reactant_examples.bad_service", "import reactant_worker", "reactant_worker")],
    "policy": [
        ("reactant_policy.bad_clock", "import time", "time"),
        ("reactant_policy.bad_thread", "import threading", "threading"),
        ("reactant_policy.bad_loop", "import asyncio", "asyncio"),
        ("reactant_policy.bad_log", "import logging", "logging"),
        ("reactant_policy.bad_io", "from pathlib import Path", "pathlib"),
        ("reactant_policy.bad_grpc", "import grpc", "grpc"),
        ("reactant_policy.bad_core", "import reactant_core", "reactant_core"),
    ],
    "jax": [("reactant_core.bad_jax", "def late():\n    from jax import numpy", "jax")],
    "jax-reach": [("reactant_supervisor.bad_programs", "import reactant_programs.compile", "jax")],
    "redis": [
        ("reactant_gateway.bad_redis", "import redis.asyncio", "redis"),
        ("reactant_core.bad_redis", "import redis", "redis"),
    ],
    "ngh2": [("reactant_gateway.bad_frames", "import ngh2", "ngh2")],
    "worker-rooms": [("reactant_worker.weights", "import reactant_worker.rpc", "reactant_worker.rpc")],
    "gateway-rooms": [
        ("reactant_gateway.h2", "import ngh2, reactant_gateway.forward", "reactant_gateway.forward"),
        ("reactant_gateway.local", "import reactant_gateway.forward", "reactant_gateway.forward"),
    ],
    "supervisor-rooms": [
        ("reactant_supervisor.devices", "import reactant_supervisor.plan", "reactant_supervisor.plan"),
    ],
    "bundle": [("reactant_core.bundle", "import reactant_core.config", "reactant_core.config")],
    "pygrpc-native": [("reactant_worker.bad_native", "import pygrpc_native.aio", "pygrpc_native")],
}


def configuration() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def contracts() -> dict[str, str]:
    """Identifier -> name of every contract whose subject the model holds."""
    prefix = "importlinter:contract:"
    parser = configuration()
    return {s.removeprefix(prefix): parser[s]["name"] for s in parser.sections() if s.startswith(prefix)}


def plant(folder: Path, modules: dict[str, str]) -> Path:
    for package in configuration()["importlinter"]["root_packages"].split():
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    for name, text in modules.items():
        (folder / (name.replace(".", "/") + ".py")).write_text(text + "\n")
    return folder


def lint(folder: Path, *identifiers: str) -> subprocess.CompletedProcess[str]:
    """Runs import-linter with the packages in `folder` in front of the installed ones."""
    chosen = [argument for identifier in identifiers for argument in ("--contract", identifier)]
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache", "--verbose", *chosen],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_what_the_architecture_allows_passes(tmp_path: Path) -> None:
    done = lint(plant(tmp_path, ALLOWED), *PLANTED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(PLANTED)} kept, 0 broken" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("identifier", PLANTED)
def test_each_wall_stops_what_it_is_for(tmp_path: Path, identifier: str) -> None:
    faults = PLANTED[identifier]
    done = lint(plant(tmp_path, ALLOWED | {name: text for name, text, _ in faults}), identifier)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contracts()[identifier]} BROKEN" in done.stdout
    for name, _, imported in faults:
        assert name in done.stdout
        assert f"-> {imported}" in done.stdout


def test_every_contract_is_tried() -> None:
    assert set(contracts()) == set(PLANTED)
