"""Rebuilds a `jax.export.Exported` from a portable artifact: the one user of JAX's unstable constructor.

JAX writes an Exported as the artifact plus a description of its own; a bundle carries only the artifact.
The constructor's fields change between releases (0.10, 0.11 and 0.12 are contract-tested), so every known
field is listed here and an unknown one is an error at once, not a wrong program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import export

from reactant_programs.element_types import NUMPY_TYPES

_NAME = "program"
"""Part of the function's name in the lowered module and so of the compile cache's key: always the same."""

_ANY_PLATFORM = "any"
"""The artifact does not say for which platform it was lowered; what it cannot run there, XLA refuses."""


def rebuild(
    portable: bytes,
    arguments: Sequence[tuple[str, Sequence[int]]],
    results: Sequence[tuple[str, Sequence[int]]],
    platforms: Sequence[str],
    *,
    lapack: bool = False,
) -> Callable[..., tuple[jax.Array, ...]]:
    """A traceable function of one array per argument that gives a tuple with one array per result.

    Args:
        portable: a StableHLO portable artifact.
        arguments: MLIR element type and dimensions of each argument of @main, a platform index left out.
        results: likewise.
        platforms: JAX's names when @main's first argument is the index of the platform among them, else
            empty.
        lapack: the program calls LAPACK on the CPU. JAX then registers SciPy's routines when it lowers the
            program, which imports SciPy (0.6 s once).

    Raises:
        TypeError: this JAX release has a field that is not known here.
    """
    in_avals, out_avals = _avals(arguments), _avals(results)
    if not platforms:
        platforms = ("cpu" if lapack else _ANY_PLATFORM,)
    values: dict[str, Any] = {
        "fun_name": _NAME,
        "in_tree": jax.tree.structure((tuple(in_avals), {})),
        "in_avals": in_avals,
        "out_tree": jax.tree.structure(tuple(out_avals)),
        "out_avals": out_avals,
        "_has_named_shardings": True,
        "_in_named_shardings": (None,) * len(in_avals),
        "_out_named_shardings": (None,) * len(out_avals),
        "in_shardings_hlo": (None,) * len(in_avals),
        "out_shardings_hlo": (None,) * len(out_avals),
        "nr_devices": 1,
        "platforms": tuple(platforms),
        "ordered_effects": (),
        "unordered_effects": (),
        "disabled_safety_checks": (export.DisabledSafetyCheck.platform(),),
        "mlir_module_serialized": portable,
        "calling_convention_version": export.maximum_supported_calling_convention_version,
        "module_kept_var_idx": tuple(range(len(in_avals))),
        "uses_global_constants": False,
        "_get_vjp": None,
    }
    fields = {field.name for field in dataclasses.fields(export.Exported) if field.init}
    if unknown := sorted(fields - values.keys()):
        raise TypeError(f"jax {jax.__version__}: jax.export.Exported has fields unknown here: {unknown}")
    exported = export.Exported(**{name: values[name] for name in fields})

    def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        outputs: tuple[jax.Array, ...] = exported.call(*arrays)  # type: ignore[no-untyped-call]
        return outputs

    call.__name__ = _NAME
    return call


def lowering_platform(device: jax.Device) -> str:
    """The name lowering rules are registered under: "cuda" for a device whose `platform` is "gpu"."""
    return str(getattr(device.client, "_raw_platform", device.client.platform))


def _avals(types: Sequence[tuple[str, Sequence[int]]]) -> tuple[jax.core.ShapedArray, ...]:
    return tuple(jax.core.ShapedArray(tuple(shape), NUMPY_TYPES[dtype]) for dtype, shape in types)
