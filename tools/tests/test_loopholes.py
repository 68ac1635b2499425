from __future__ import annotations

from pathlib import Path

import pytest
from tools.loopholes import MAY_IMPORT_BY_NAME, check, loopholes, module_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("core/src/reactant_core/logs.py", "reactant_core.logs"),
        ("services/worker/src/reactant_worker/rpc/__init__.py", "reactant_worker.rpc"),
        ("core/tests/test_logs.py", None),
        ("core/src/reactant_core/py.typed", None),
    ],
)
def test_module_names(path: str, expected: str | None) -> None:
    assert module_name(Path(path)) == expected


@pytest.mark.parametrize(
    "call", ["importlib.import_module('jax')", "__import__('jax')", "import_module(name)"]
)
def test_importing_by_name_is_seen(call: str) -> None:
    [(line, sentence)] = loopholes("reactant_gateway.app", f"def late():\n    return {call}\n")
    assert line == 2
    assert "hides an import" in sentence


def test_listed_modules_may_import_by_name() -> None:
    [listed, *_] = MAY_IMPORT_BY_NAME
    assert loopholes(listed, "importlib.import_module('pygrpc_native.aio')") == []


def test_input_and_output_are_stopped_in_policy_and_nowhere_else() -> None:
    [(_, sentence)] = loopholes("reactant_policy.scheduling.fifo", "open('/etc/hosts')")
    assert "is pure" in sentence
    assert loopholes("reactant_core.bundle.files", "open('/etc/hosts')") == []
    assert loopholes("reactant_policy.leases", "stack.open(1)") == []


def test_faults_name_file_and_line(tmp_path: Path) -> None:
    path = Path("cli/src/reactant_cli/late.py")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("\n__import__('jax')\n")
    [fault] = check(tmp_path, [path, Path("README.md")])
    assert fault.startswith("cli/src/reactant_cli/late.py:2: __import__")


def test_every_exception_still_exists() -> None:
    for module in MAY_IMPORT_BY_NAME:
        assert any(ROOT.glob(f"*/src/{module.replace('.', '/')}.py"))
