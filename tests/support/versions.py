"""Versions of one bundle, and which of them a reply is of."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from tests.support.client import Reply
from tests.support.messages import arrays, infer, tensor

from reactant_proto import inference_pb2 as pb


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """The version of each part of a bundle, or of each part that made a reply."""

    program: int
    weights: int
    hooks: int
    asset: int


def all_of(version: int) -> Parts:
    """Everything of one version."""
    return Parts(version, version, version, version)


def write(fixtures: Path, path: Path, parts: Parts) -> Path:
    """Writes the bundle `path`, which must not exist, from parts of these versions (1 or 2)."""
    shutil.copytree(fixtures / f"version_{parts.program}", path)
    shutil.copy(fixtures / f"version_{parts.weights}" / "weights.safetensors", path)
    hooks = path / "model.py"
    hooks.write_text(hooks.read_text().replace("VERSION = 1", f"VERSION = {parts.hooks}"))
    (path / "asset.txt").write_text(str(parts.asset))
    return path


def ask(model: str, rows: int = 1, seconds: float = 0.0) -> pb.ModelInferRequest:
    """A request of such a model, whose hooks take `seconds`."""
    parameters = {"seconds": seconds} if seconds else None
    return infer(model, tensor("X", np.ones((rows, 1), np.float32)), parameters=parameters)


def answered(reply: Reply) -> Parts:
    """The versions that made a reply, which must be one and all rows of it the same."""
    found = {name: {int(v) for v in array.ravel()} for name, array in arrays(reply.ok()).items()}
    assert all(len(values) == 1 for values in found.values()), found
    return Parts(**{name: values.pop() for name, values in found.items()})
