from __future__ import annotations

import os
from pathlib import Path

import pytest

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.files import open_regular


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = set(os.listdir("/proc/self/fd"))
    for name in ("folder", "pipe"):
        with (
            pytest.raises(BundleError, match=f"{name}: is not a regular file"),
            open_regular(tmp_path / name),
        ):
            pass
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(BundleError, match="nothing: cannot be opened"), open_regular(tmp_path / "nothing"):
        pass
