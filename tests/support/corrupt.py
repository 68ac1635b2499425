"""Bundles that must not load, each made from a sound one, with what its fault must be called."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

Damage = Callable[[Path], None]
_STAMP = re.compile(rb"StableHLO_v\d+\.\d+\.\d+")


@final
@dataclass(frozen=True, slots=True)
class Corrupt:
    """A way to spoil a bundle.

    Attributes:
        id: the case and what is wrong.
        damage: changes a copy of the base.
        reasons: what the reason in the repository index must contain.
        base: the fixture that is copied.
    """

    id: str
    damage: Damage
    reasons: tuple[str, ...]
    base: str = "columns"

    @property
    def model(self) -> str:
        """The bundle's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.id.lower()).strip("-")

    def write(self, fixtures: Path, folder: Path) -> Path:
        """Makes the spoilt bundle in `folder`."""
        path = folder / self.model
        shutil.copytree(fixtures / self.base, path)
        self.damage(path)
        return path


def _replace(name: str, data: bytes) -> Damage:
    return lambda path: _ignore((path / name).write_bytes(data))


def _ignore(_: object) -> None:
    return None


def _remove(name: str) -> Damage:
    return lambda path: (path / name).unlink()


def _manifest(edit: Callable[[str], str]) -> Damage:
    def damage(path: Path) -> None:
        file = path / "manifest.yaml"
        file.write_text(edit(file.read_text()))

    return damage


def _append(text: str) -> Damage:
    return _manifest(lambda old: f"{old}\n{text}\n")


def _programs(edit: Callable[[bytes], bytes]) -> Damage:
    def damage(path: Path) -> None:
        for file in path.glob("*.mlir"):
            file.write_bytes(edit(file.read_bytes()))

    return damage


def _stamped(version: str) -> Damage:
    return _programs(lambda data: _STAMP.sub(f"StableHLO_v{version}".encode(), data, count=1))


def _weights(
    tensors: Mapping[str, Mapping[str, Any]], data: bytes, *, order: list[str] | None = None
) -> Damage:
    """A weight file with this header, true or not."""
    metadata = {"argument_order": json.dumps(sorted(tensors) if order is None else order)}
    header = json.dumps({"__metadata__": metadata, **tensors}).encode()
    return _replace("weights.safetensors", len(header).to_bytes(8, "little") + header + data)


def _shift(**changed: Any) -> dict[str, Any]:
    """The header's entry of the base's one weight, FP32[3]."""
    return {"dtype": "F32", "shape": [3], "data_offsets": [0, 12], **changed}


def _duplicate_key(path: Path) -> None:
    entry = json.dumps(_shift())
    header = (
        f'{{"__metadata__":{{"argument_order":"[\\"shift\\"]"}},"shift":{entry},"shift":{entry}}}'.encode()
    )
    (path / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))


def _sparse(name: str, size: int, head: bytes = b"") -> Damage:
    """A large file that takes no room on disk."""

    def damage(path: Path) -> None:
        with (path / name).open("wb") as file:
            file.write(head)
            file.truncate(size)

    return damage


def _fifo(name: str) -> Damage:
    def damage(path: Path) -> None:
        (path / name).unlink()
        os.mkfifo(path / name)

    return damage


def _hooks(text: str) -> Damage:
    return _replace("model.py", text.encode())


def _setup(statement: str) -> Damage:
    return _hooks(f"import asyncio\n\ndef setup(bundle):\n    {statement}\n")


def _bomb() -> str:
    """Nine levels of nine aliases each: a few hundred bytes that stand for 387 million values."""
    lines = ["x0: &x0 [a]"]
    for level in range(1, 10):
        lines.append(f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]")
    return "\n".join(lines)


_DEEP = "provenance: " + "[" * 5000 + "]" * 5000

CORRUPT: tuple[Corrupt, ...] = (
    Corrupt("L5 corrupt module", _programs(lambda data: data[:40] + bytes(len(data) - 40)), ("mlir",)),
    Corrupt("L5 module cut short", _programs(lambda data: data[: len(data) // 2]), ("mlir",)),
    Corrupt("L5 module missing", _remove("model.b4.mlir"), ("model.b4.mlir", "missing")),
    Corrupt(
        "L5 module of another signature", _manifest(lambda text: text.replace("f32", "i32")), ("f32", "i32")
    ),
    Corrupt("L5 empty module", _programs(lambda data: b""), ("mlir",)),
    Corrupt("L10 of the next major version", _stamped("99.0.0"), ("99.0.0",)),
    Corrupt("L10 of a later minor version", _stamped("1.99.0"), ("1.99.0",)),
    Corrupt("L10 junk", _programs(lambda data: bytes(range(256)) * 4), ("mlir",)),
    Corrupt(
        "L11 header length 2^63",
        _replace("weights.safetensors", (2**63).to_bytes(8, "little") + b"{}"),
        ("weights.safetensors", str(2**63)),
    ),
    Corrupt(
        "L11 header of 200 MB",
        _sparse("weights.safetensors", 8 + 200_000_000, (200_000_000).to_bytes(8, "little") + b'{"a":'),
        ("weights.safetensors", "200000000"),
    ),
    Corrupt(
        "L11 overlap",
        _weights({"shift": _shift(), "other": _shift(data_offsets=[4, 16])}, bytes(16)),
        ("weights.safetensors", "overlap"),
    ),
    Corrupt(
        "L11 trailing bytes",
        _weights({"shift": _shift()}, bytes(13)),
        ("weights.safetensors", "1 bytes after"),
    ),
    Corrupt("L11 data missing", _weights({"shift": _shift()}, bytes(11)), ("weights.safetensors", "short")),
    Corrupt(
        "L11 shape 2^62 by 4",
        _weights({"shift": _shift(shape=[2**62, 4])}, bytes(12)),
        ("weights.safetensors", "shift"),
    ),
    Corrupt("L11 duplicate key", _duplicate_key, ("weights.safetensors", "shift")),
    Corrupt(
        "L11 missing tensor",
        _weights({"other": _shift()}, bytes(12), order=["shift"]),
        ("weights.safetensors", "shift"),
    ),
    Corrupt(
        "L11 unknown dtype",
        _weights({"shift": _shift(dtype="C64", data_offsets=[0, 24])}, bytes(24)),
        ("weights.safetensors", "C64"),
    ),
    Corrupt("L11 no file", _remove("weights.safetensors"), ("argument",)),
    Corrupt("L11 not a regular file", _fifo("weights.safetensors"), ("weights.safetensors",)),
    Corrupt("L12 aliases of aliases", _append(_bomb()), ("manifest.yaml",)),
    Corrupt("L12 5000 brackets", _append(_DEEP), ("manifest.yaml",)),
    Corrupt(
        "L12 duplicate key of a mapping", _append("format_version: '3'"), ("manifest.yaml", "format_version")
    ),
    Corrupt(
        "L12 tag that builds an object",
        _append("provenance: !!python/object/apply:os.getcwd []"),
        ("manifest.yaml", "python"),
    ),
    Corrupt("L12 50 MB", _sparse("manifest.yaml", 50_000_000), ("manifest.yaml", "50000000")),
    Corrupt("L12 not a regular file, the manifest", _fifo("manifest.yaml"), ("manifest.yaml",)),
    Corrupt("L12 no manifest", _remove("manifest.yaml"), ("manifest.yaml", "missing")),
    Corrupt("unknown key", _append("bathcing: {}"), ("manifest.yaml", "bathcing", "batching")),
    Corrupt(
        "unknown format",
        _manifest(lambda text: re.sub("format_version: .*", "format_version: '9'", text)),
        ("format_version", "9"),
    ),
    Corrupt("hooks of the Julia server", _replace("model.jl", b"# hooks"), ("model.py",)),
    Corrupt("hooks that do not parse", _hooks("def preprocess(:\n"), ("SyntaxError",)),
    Corrupt("hooks without their library", _hooks("import no_such_library\n"), ("no_such_library",)),
    Corrupt("setup raises", _setup("raise ValueError('no vocabulary')"), ("no vocabulary",)),
    Corrupt("setup exits", _setup("raise SystemExit(3)"), ("SystemExit",)),
    Corrupt("setup cancels", _setup("raise asyncio.CancelledError"), ("Cancelled",)),
    Corrupt("module exits", _hooks("import sys\nsys.exit('bye')\n"), ("SystemExit",)),
    Corrupt("preprocess is no function", _hooks("preprocess = 3\n"), ("preprocess",)),
)
