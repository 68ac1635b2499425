"""Finds ways around the import walls that import-linter cannot see: `python -m tools.loopholes`.

A module imported by name at run time is in no import graph, and built-ins need no import at all.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.files import checkout_files

MAY_IMPORT_BY_NAME: Final = {
    "reactant_core.rpc.native": "the native transport is optional: its wheel may be missing",
    "reactant_export.main": "a user names the module that holds what is exported",
    "reactant_examples.catalogue": "its own builders bring JAX in, for a model that is out of date",
}
"""Module -> why it imports by name."""

IMPURE_BUILTINS: Final = frozenset({"open", "input", "print", "exec", "eval", "compile", "breakpoint"})
PURE_PACKAGE: Final = "reactant_policy"
IMPORTERS: Final = frozenset({"__import__", "import_module", "importlib.import_module", "runpy.run_module"})


def module_name(path: Path) -> str | None:
    """`core/src/reactant_core/logs.py` -> `reactant_core.logs`; None for what is not below a `src`."""
    if path.suffix != ".py" or "src" not in path.parts:
        return None
    below = path.with_suffix("").parts[path.parts.index("src") + 1 :]
    return ".".join(part for part in below if part != "__init__")


def loopholes(module: str, text: str) -> list[tuple[int, str]]:
    """Line and sentence for each call in `text`, the source of `module`, that goes around a wall."""
    faults = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in IMPORTERS and module not in MAY_IMPORT_BY_NAME:
            faults.append(
                (
                    node.lineno,
                    f"{called} hides an import from the walls: import it, or list {module} with a reason",
                )
            )
        if called in IMPURE_BUILTINS and module.split(".", maxsplit=1)[0] == PURE_PACKAGE:
            faults.append((node.lineno, f"{called}: {PURE_PACKAGE} is pure, it has no input or output"))
    return faults


def check(root: Path, paths: Iterable[Path]) -> list[str]:
    """One sentence, with file and line, for each loophole in the sources among `paths`."""
    faults = []
    for path in paths:
        module = module_name(path)
        if module is not None:
            found = loopholes(module, (root / path).read_text(encoding="utf-8"))
            faults += [f"{path}:{line}: {sentence}" for line, sentence in found]
    return faults


def main() -> int:
    root = Path.cwd()
    faults = check(root, checkout_files(root))
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
