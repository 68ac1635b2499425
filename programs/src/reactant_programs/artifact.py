"""Reads a StableHLO artifact: what it takes and gives, and a form of it that is safe to compile."""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.files import read_small
from reactant_core.bundle.signature import Signature, TensorType
from reactant_programs.cache import record_inspection, recorded_inspection
from reactant_programs.custom_calls import refused_targets
from reactant_programs.inspector import Inspector, InspectorError

SIZE_LIMIT_BYTES: Final = 256 << 20
"""Weights are arguments, so a program is small; one this large has its weights baked in."""


@final
@dataclass(frozen=True, slots=True)
class Artifact:
    """One checked program.

    Attributes:
        path: the file it was read from.
        digest: SHA-256 (hex) of the normalised program: equal for equal computations, whatever the file,
            the module or the exported function was called.
        portable: the normalised program, a StableHLO portable artifact without debug locations and
            without donation or aliasing marks (a program never overwrites its arguments).
        signature: arguments and results of @main, a platform index left out.
        stablehlo_version: the version it was written for, "X.Y.Z", or "" for MLIR text.
        custom_calls: targets of its custom calls, sorted; all of them allowed.
        platforms: JAX's platform names ("cpu", "cuda", ...) when its first argument is a platform index,
            in the index's order; empty for a program of one platform or of any.
    """

    path: Path
    digest: str
    portable: bytes
    signature: Signature
    stablehlo_version: str
    custom_calls: tuple[str, ...]
    platforms: tuple[str, ...]


_inspector = Inspector()
atexit.register(_inspector.close)


def read_artifact(path: Path) -> Artifact:
    """Reads and checks one artifact; safe to call from many threads.

    The bytes are parsed in a child process first: damaged ones can crash MLIR's reader.

    Raises:
        BundleError: naming the file. Too large, unreadable, neither bytecode nor text, damaged, written for
            a StableHLO version outside what this server reads (both are named), no @main, dynamic shapes,
            more than one device, custom calls off the list, or several platforms without their names.
    """
    try:
        data = read_small(path, SIZE_LIMIT_BYTES)
    except OSError as error:
        raise BundleError(f"{path.name}: cannot be read: {error.strerror}") from error
    return parse_artifact(data, path)


def parse_artifact(data: bytes, path: Path) -> Artifact:
    """Checks an artifact that is already in memory; `path` is what errors and the result name.

    Raises:
        BundleError: as `read_artifact`.
    """
    found, portable = recorded_inspection(data) or _inspect(data, path)
    if refused := refused_targets(found["custom_calls"]):
        calls = ", ".join(refused)
        raise BundleError(f"{path.name}: calls native code that is not allowed (custom_call {calls})")
    return _artifact(path, found, portable)


def _inspect(data: bytes, path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        found, portable = _inspector.inspect(data)
    except InspectorError as error:
        raise BundleError(f"{path.name}: {error}") from error
    if "refused" in found:
        raise BundleError(f"{path.name}: {found['refused']}")
    record_inspection(data, found, portable)
    return found, portable


def _artifact(path: Path, found: Mapping[str, Any], portable: bytes) -> Artifact:
    return Artifact(
        path=path,
        digest=hashlib.sha256(portable).hexdigest(),
        portable=portable,
        signature=Signature(arguments=_types(found["arguments"]), results=_types(found["results"])),
        stablehlo_version=found["stablehlo_version"],
        custom_calls=tuple(found["custom_calls"]),
        platforms=tuple(found["platforms"]),
    )


def _types(entries: list[list[Any]]) -> tuple[TensorType, ...]:
    return tuple(TensorType(dtype=dtype, shape=tuple(shape)) for dtype, shape in entries)
