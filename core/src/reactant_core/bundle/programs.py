"""Which program files a manifest asks for, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from reactant_core.bundle.errors import FaultList
from reactant_core.bundle.manifest import Manifest

PROGRAM_FILE: Final = re.compile(r"model(?:\..*)?\.mlir")


@final
@dataclass(frozen=True, slots=True)
class ProgramKey:
    """One compiled program of a bundle.

    Attributes:
        batch: size of the batch axes; None when no input has one.
        variant: index into `input_shapes`; None without variants.
    """

    batch: int | None
    variant: int | None


def program_keys(manifest: Manifest) -> tuple[ProgramKey, ...]:
    """The programs a manifest asks for: variants in order, in each the batch sizes ascending."""
    if manifest.kind == "meta":
        return ()
    batches: tuple[int | None, ...] = manifest.compiled_batch_sizes or (None,)
    variants: tuple[int | None, ...] = tuple(range(len(manifest.input_shapes))) or (None,)
    return tuple(ProgramKey(batch, variant) for variant in variants for batch in batches)


def program_names(manifest: Manifest, key: ProgramKey) -> tuple[str, ...]:
    """File names a program may have, the usual one first.

    Version 3: `model.mlir`, `model.b{N}.mlir`, `model.s{K}.mlir`, `model.b{N}.s{K}.mlir`.
    Version 2 writes a variant as `v{K}` and before the batch size. Where there is one batch size its
    part may be left out.
    """
    old = manifest.format_version == "2"
    variant = "" if key.variant is None else f".v{key.variant}" if old else f".s{key.variant}"
    batch = key.batch
    if batch is None and old:
        batch = 1  # the size version 2 may give a program without batch axes
    plain = f"model{variant}.mlir"
    named = f"model{variant}.b{batch}.mlir" if old else f"model.b{batch}{variant}.mlir"
    if key.batch is None:
        return (plain, named) if old else (plain,)
    return (named, plain) if len(manifest.compiled_batch_sizes) == 1 else (named,)


def find_programs(
    faults: FaultList, manifest: Manifest, directory: Path, files: Collection[str]
) -> Mapping[ProgramKey, Path]:
    """The program files of `manifest` among `files`; missing, doubled and surplus ones are faults."""
    found: dict[ProgramKey, Path] = {}
    surplus = {name for name in files if PROGRAM_FILE.fullmatch(name)}
    for key in program_keys(manifest):
        names = program_names(manifest, key)
        present = [name for name in names if name in surplus]
        surplus.difference_update(present)
        if not present:
            faults.add(f"{names[0]}: missing{_purpose(key)}")
        elif len(present) > 1:
            faults.add(f"{' and '.join(present)}: both are the same program; keep one")
        else:
            found[key] = directory / present[0]
    for name in sorted(surplus):
        why = "a meta has no programs" if manifest.kind == "meta" else "the manifest asks for no such program"
        faults.add(f"{name}: {why}")
    return found


def _purpose(key: ProgramKey) -> str:
    parts = []
    if key.batch is not None:
        parts.append(f"batch size {key.batch}")
    if key.variant is not None:
        parts.append(f"input_shapes[{key.variant}]")
    return f"; it is the program for {' and '.join(parts)}" if parts else ""
