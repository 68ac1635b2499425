"""Shared-memory objects by name."""

from __future__ import annotations

import os
from pathlib import Path

from reactant_core.kserve.shm import same_ipc_namespace


def test_same_ipc_namespace_opens_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "region").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    outside = tmp_path.parent / "outside"
    outside.write_bytes(b"x")
    (tmp_path / "link").symlink_to(outside)
    os.mkfifo(tmp_path / "pipe")
    assert same_ipc_namespace("region", tmp_path)
    assert same_ipc_namespace("/region", tmp_path)
    for name in (
        "",
        "/",
        ".",
        "..",
        "../outside",
        "//region",
        "folder",
        "link",
        "pipe",
        "nope",
        "a\0b",
        "x" * 300,
    ):
        assert not same_ipc_namespace(name, tmp_path), name
