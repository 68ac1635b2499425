from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.bundle.errors import FaultList
from reactant_core.bundle.manifest import Manifest, parse_manifest
from reactant_core.bundle.programs import ProgramKey, find_programs, program_keys, program_names

FOLDER = Path("folder")


def _manifest(version: str, *, sizes: list[int] | None, variants: int) -> Manifest:
    batch = "" if sizes is None else "n"
    extent = -1 if variants else 4
    lines = [
        f'format_version: "{version}"',
        f"executable_inputs: [{{name: x, dtype: f32, shape: {batch}k, dims: {{k: {extent}}}}}]",
        f"executable_outputs: [{{name: y, dtype: f32, shape: {batch}k, dims: {{k: 1}}}}]",
    ]
    if sizes is not None:
        lines.append(f"batching: {{compiled_batch_sizes: {sizes}}}")
    if variants:
        lines.append(f"input_shapes: [{', '.join(f'{{k: {k + 1}}}' for k in range(variants))}]")
    return parse_manifest("\n".join(lines).encode())


# Each row: version, batch sizes, variants, and for each program the names it may have.
NAMES = [
    ("3", None, 0, {(None, None): ("model.mlir",)}),
    ("3", None, 2, {(None, 0): ("model.s0.mlir",), (None, 1): ("model.s1.mlir",)}),
    ("3", [4], 0, {(4, None): ("model.b4.mlir", "model.mlir")}),
    ("3", [4], 1, {(4, 0): ("model.b4.s0.mlir", "model.s0.mlir")}),
    ("3", [8, 1], 0, {(1, None): ("model.b1.mlir",), (8, None): ("model.b8.mlir",)}),
    (
        "3",
        [1, 8],
        2,
        {
            (1, 0): ("model.b1.s0.mlir",),
            (8, 0): ("model.b8.s0.mlir",),
            (1, 1): ("model.b1.s1.mlir",),
            (8, 1): ("model.b8.s1.mlir",),
        },
    ),
    ("2", None, 0, {(None, None): ("model.mlir", "model.b1.mlir")}),
    ("2", [4], 0, {(4, None): ("model.b4.mlir", "model.mlir")}),
    ("2", [1, 8], 1, {(1, 0): ("model.v0.b1.mlir",), (8, 0): ("model.v0.b8.mlir",)}),
    (
        "2",
        [1],
        2,
        {(1, 0): ("model.v0.b1.mlir", "model.v0.mlir"), (1, 1): ("model.v1.b1.mlir", "model.v1.mlir")},
    ),
]


@pytest.mark.parametrize(("version", "sizes", "variants", "expected"), NAMES)
def test_program_files(
    version: str,
    sizes: list[int] | None,
    variants: int,
    expected: dict[tuple[int | None, int | None], tuple[str, ...]],
) -> None:
    manifest = _manifest(version, sizes=sizes, variants=variants)
    keys = [ProgramKey(*key) for key in expected]
    assert list(program_keys(manifest)) == keys
    assert [program_names(manifest, key) for key in keys] == list(expected.values())
    for choose in (0, -1):
        faults = FaultList()
        names = [names[choose] for names in expected.values()]
        found = find_programs(faults, manifest, FOLDER, [*names, "notes.txt", "weights.safetensors"])
        assert found == {key: FOLDER / name for key, name in zip(keys, names, strict=True)}
        assert faults.sentences() == ()


def test_missing_doubled_and_surplus_files_are_faults() -> None:
    manifest = _manifest("3", sizes=[4], variants=2)
    faults = FaultList()
    files = ["model.b4.s0.mlir", "model.s0.mlir", "model.b4.mlir", "model.b2.s1.mlir", "amodel.mlir"]
    assert find_programs(faults, manifest, FOLDER, files) == {}
    assert faults.sentences() == (
        "model.b4.s0.mlir and model.s0.mlir: both are the same program; keep one",
        "model.b4.s1.mlir: missing; it is the program for batch size 4 and input_shapes[1]",
        "model.b2.s1.mlir: the manifest asks for no such program",
        "model.b4.mlir: the manifest asks for no such program",
    )
