from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOUSE = ["help", "run", "demo", "test", "check", "fix", "proto", "bench", "clean"]


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # An outer make's flags, such as a dry run or a jobserver, are none of this one's business.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_help_has_a_line_for_every_target() -> None:
    listed = dict(line.split(maxsplit=1) for line in make("help").stdout.splitlines())
    assert set(listed) == targets()
    assert set(HOUSE) <= set(listed)
    assert all(listed.values())


def test_check_runs_every_check_there_is() -> None:
    named = re.search(r"^CHECKS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert named is not None
    assert {f"check-{name}" for name in named[1].split()} == {t for t in targets() if t.startswith("check-")}


@pytest.fixture
def extra_checks(tmp_path: Path) -> dict[str, str]:
    """Variables that give make two more checks and an environment that counts as set up."""
    (tmp_path / "extra.mk").write_text("check-good:\n\t@true\ncheck-bad:\n\t@echo the reason; exit 3\n")
    (tmp_path / "stamp").touch()
    return {"MAKEFILES": str(tmp_path / "extra.mk"), "STAMP": str(tmp_path / "stamp")}


def test_a_failed_check_is_named_and_the_others_still_run(extra_checks: dict[str, str]) -> None:
    stamp = f"STAMP={extra_checks.pop('STAMP')}"
    done = make("check", "CHECKS=bad good", stamp, **extra_checks)
    lines = done.stdout.splitlines()
    assert done.returncode != 0
    assert "FAILED  check-bad" in lines
    assert "the reason" in lines
    assert "ok      check-good" in lines
    assert lines[-1] == "failed: check-bad"


def test_checks_that_pass_pass(extra_checks: dict[str, str]) -> None:
    stamp = f"STAMP={extra_checks.pop('STAMP')}"
    done = make("check", "CHECKS=good", stamp, **extra_checks)
    assert (done.returncode, done.stdout) == (0, "ok      check-good\n")
