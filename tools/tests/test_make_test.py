"""`make test` runs every folder of tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_is_run_once() -> None:
    makefile = (ROOT / "Makefile").read_text()
    lists = re.findall(r"^(?:SIDE_BY_SIDE|ONE_BY_ONE) := (.*)$", makefile, re.MULTILINE)
    run = [folder for folders in lists for folder in folders.split()]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    assert sorted(run) == sorted(known)
