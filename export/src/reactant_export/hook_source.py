"""What a bundle's `model.py` defines, found without running it."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from reactant_core.bundle.manifest import Manifest

_HOOKS_OF_A_MODEL = ("setup", "preprocess", "postprocess")
_HOOKS_OF_A_META = ("setup", "run")


@final
@dataclass(frozen=True, slots=True)
class HookSource:
    """Names of the hooks a server would call, and what keeps it from serving with them."""

    names: tuple[str, ...]
    faults: tuple[str, ...]


def inspect_hooks(manifest: Manifest, source: bytes) -> HookSource:
    """Parses the text of `model.py`.

    A hook counts wherever the module binds its name outside of functions and classes: by def, by
    assignment, by import. After `from x import *` any name may be there, and none is missed.
    """
    try:
        defined = frozenset(_defined(ast.parse(source, filename="model.py")))
    except (SyntaxError, ValueError) as error:
        return HookSource((), (f"model.py: is not Python: {error}",))
    meta = manifest.kind == "meta"
    wanted = _HOOKS_OF_A_META if meta else _HOOKS_OF_A_MODEL
    faults: list[str] = []
    if meta and not defined & {"run", "*"}:
        faults = ["model.py: a meta needs a function run(inputs, call, request)"]
    elif not meta and "*" not in defined:
        faults = [
            f"client_{side} differ from executable_{side} and model.py has no {hook}{_hint(hook, defined)}"
            for hook, side in _needed(manifest)
            if hook not in defined
        ]
    return HookSource(tuple(name for name in wanted if name in defined), tuple(faults))


def _needed(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Hooks that must turn one kind of tensors into the other, and the side they work on."""
    # The comparison a server makes: by value, in any order.
    if manifest.client_inputs is not None and set(manifest.client_inputs) != set(manifest.executable_inputs):
        yield "preprocess", "inputs"
    client, executable = manifest.client_outputs, manifest.executable_outputs
    if client is not None and set(client) != set(executable):
        yield "postprocess", "outputs"


def _hint(hook: str, defined: frozenset[str]) -> str:
    near = difflib.get_close_matches(hook, sorted(defined - {*_HOOKS_OF_A_MODEL}), n=1, cutoff=0.8)
    return f"; is {near[0]} meant to be it?" if near else ""


def _defined(tree: ast.Module) -> Iterator[str]:
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue  # names of their own
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            continue  # an annotation alone binds nothing
        else:
            pending.extend(ast.iter_child_nodes(node))
