"""The compiled gateway is the gateway: what its data plane is tested for holds for the compiled modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import compile_gateway

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = () if os.environ.get("REACTANT_TEST_FULL") == "1" else ("-m", "not slow")
"""All of them have run once already, on the modules as they stand."""


@pytest.fixture(scope="module")
def package() -> Path:
    lacks = compile_gateway.missing()
    if lacks is not None:
        pytest.skip(lacks)
    return compile_gateway.compiled()


def _run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
    )


@pytest.mark.timeout(300)
def test_every_module_that_a_request_goes_through_is_compiled(package: Path) -> None:
    names = [
        f"reactant_gateway.{module.removesuffix('.py').replace('/', '.')}"
        for module in compile_gateway.MODULES
    ]
    code = f"import importlib\nfor n in {names!r}: print(importlib.import_module(n).__file__)"
    ran = _run(package, "-c", code)
    files = [Path(line) for line in ran.stdout.split()]
    assert len(files) == len(names), ran.stderr
    assert [file for file in files if file.suffix != ".so" or package not in file.parents] == []


@pytest.mark.timeout(600)
def test_it_passes_the_tests_of_the_data_plane(package: Path) -> None:
    # `python -m pytest` of its own: this process has the modules as they stand.
    folders = [f"services/gateway/tests/{room}" for room in ("forward", "h2")]
    ran = _run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CHOSEN, *folders)
    assert ran.returncode == 0, ran.stdout[-8000:]


def test_an_edit_asks_for_a_new_one(tmp_path: Path) -> None:
    source = tmp_path / "services/gateway/src/reactant_gateway/router.py"
    source.parent.mkdir(parents=True)
    source.write_text("A = 1\n")
    before = compile_gateway._digest(tmp_path)
    source.write_text("A = 2\n")
    assert compile_gateway._digest(tmp_path) != before


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(compile_gateway.CompileError, match="no C compiler"):
        compile_gateway.compile_into(tmp_path / "made")
    assert compile_gateway.main(["--into", str(tmp_path / "made")]) == 1
