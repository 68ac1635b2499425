"""Lowers a JAX function to the bytes of one program file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from reactant_core.bundle.errors import BundleError
from reactant_programs.artifact import parse_artifact
from reactant_programs.inspection import PLATFORMS_ATTRIBUTE, make_context

Flat = Callable[..., tuple[jax.Array, ...]]


def lower(
    function: Flat, avals: Sequence[jax.ShapeDtypeStruct], *, platforms: Sequence[str], path: Path
) -> bytes:
    """One StableHLO portable artifact that runs on every one of `platforms`.

    JAX lowers per platform. Where all lowerings come out equal, which is the rule, that one module is
    written and names no platform. Where they differ (linear algebra and random numbers call a platform's
    own library), the module takes the platform's index as first argument and its attribute
    `reactant.platforms` lists their names in the index's order.

    The artifact is written for the StableHLO version of four weeks before the installed one, so that
    servers need not be newer than the exporter, and without source locations.

    Args:
        function: takes one array per entry of `avals`.
        avals: shapes and dtypes.
        platforms: JAX's names, at least one.
        path: the file it is for, for error texts.

    Raises:
        BundleError: naming the file: it cannot be lowered for a platform, or a server would refuse it.
    """
    jitted = jax.jit(function, keep_unused=True)
    lowered = [_serialized(jitted, avals, (platform,), path) for platform in platforms]
    if len({parse_artifact(data, path).digest for data in lowered}) == 1:
        return _portable(lowered[0], ())
    return _portable(_serialized(jitted, avals, platforms, path), platforms)


def _serialized(
    jitted: Any, avals: Sequence[jax.ShapeDtypeStruct], platforms: Sequence[str], path: Path
) -> bytes:
    try:
        exported = export.export(jitted, platforms=tuple(platforms))(*avals)
    except (NotImplementedError, ValueError) as error:
        names, text = " and ".join(platforms), " ".join(str(error).split())[:600]
        raise BundleError(f"{path.name}: cannot be lowered for {names}: {text}") from error
    return bytes(exported.mlir_module_serialized)


def _portable(data: bytes, platforms: Sequence[str]) -> bytes:
    context = make_context([])
    with context, ir.Location.unknown(context):
        module = stablehlo.deserialize_portable_artifact(context, data)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        if platforms:
            names = [ir.StringAttr.get(platform) for platform in platforms]
            module.operation.attributes[PLATFORMS_ATTRIBUTE] = ir.ArrayAttr.get(names)
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_4
        )
        return bytes(stablehlo.serialize_portable_artifact(module, version, True))
