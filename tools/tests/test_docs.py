"""What the pages tell people to type exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.files import checkout_files

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in checkout_files(ROOT) if path.suffix == ".md" and path.name != "CHANGELOG.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE
    )


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        (str(page), target)
        for page in PAGES
        for text in re.findall(r"`+([^`]+)`+", (ROOT / page).read_text())
        for target in re.findall(r"(?:^|[\s;])make ([a-z][a-z-]+)", text)
    }
    assert named
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_every_variable_that_a_page_names_is_known() -> None:
    from reactant_core.config.gateway import GATEWAY_VARIABLES, HOLD_FD_VARIABLE, LISTEN_FDS_VARIABLE
    from reactant_core.config.load import NODE_VARIABLES, WORKER_VARIABLES

    known = {*NODE_VARIABLES, *WORKER_VARIABLES, *GATEWAY_VARIABLES, HOLD_FD_VARIABLE, LISTEN_FDS_VARIABLE}
    known |= {"REACTANT_NODE_FILE", "REACTANT_GATEWAY_FILE", "REACTANT_LOG_FORMAT"}
    known |= {"REACTANT_GPU", "REACTANT_GPU_VERSION"}
    known |= {"REACTANT_TEST_FULL", "REACTANT_TEST_LOAD_SECONDS"}
    named = {
        (str(page), name)
        for page in PAGES
        for name in re.findall(
            r"\b((?:INFERENCE_SERVER|REACTANT)_[A-Z_]*[A-Z])\b(?![_<*…])", (ROOT / page).read_text()
        )
    }
    assert named
    assert {(page, name) for page, name in named if name not in known} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=str)
def test_python_blocks_are_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.slow
def test_the_bundle_that_the_page_writes_is_a_good_one(tmp_path: Path) -> None:
    [example] = [block for block in blocks(Path("docs/bundles.md"), "python") if "export_spec" in block]
    (tmp_path / "matmul.py").write_text(example)
    exporter = str(Path(sys.executable).parent / "reactant-export")
    command = [exporter, "jax", "matmul.py:matmul", "bundles/matmul"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ok"
