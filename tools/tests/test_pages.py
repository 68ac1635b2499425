from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools.files import checkout_files
from tools.lengths import is_written_by_hand, too_long
from tools.links import anchors, dead_links

PAGE = Path("docs/page.md")


def faults(root: Path, text: str) -> list[str]:
    (root / PAGE).parent.mkdir(exist_ok=True)
    (root / PAGE).write_text(text)
    (root / "README.md").write_text("# The house\n\n## What it is, and is not\n\n## Twice\n\n## Twice\n")
    return dead_links(root, [PAGE, Path("README.md")])


@pytest.mark.parametrize(
    "text",
    [
        "[home](../README.md)",
        "[part](../README.md#what-it-is-and-is-not)",
        "[second](../README.md#twice-1)",
        "# Here\n[above](#here)",
        "[folder](.)",
        '[titled](../README.md "the house")',
        "[elsewhere](https://example.org/nothing) and [mail](mailto:a@example.org)",
        "`[not a link](gone.md)`",
        "```\n[not a link](gone.md)\n```",
        "[name]: ../README.md",
    ],
)
def test_links_that_lead_somewhere(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[gone](gone.md)", "does not exist"),
        ("![picture](gone.png)", "does not exist"),
        ("[name]: gone.md", "does not exist"),
        ("[part](../README.md#nowhere)", "has no heading 'nowhere'"),
        ("[here](#nowhere)", "has no heading 'nowhere'"),
        ("[out](../../elsewhere.md)", "leads out of the repository"),
        ("[absolute](/README.md)", "is absolute"),
        ("```\ncode\n```\n[gone](gone.md)", "does not exist"),
    ],
)
def test_links_that_lead_nowhere(tmp_path: Path, text: str, reason: str) -> None:
    [fault] = faults(tmp_path, text)
    assert reason in fault
    line = text.count("\n") + 1
    assert fault.startswith(f"docs/page.md:{line}: ")


def test_anchors_are_spelt_as_code_hosts_spell_them() -> None:
    text = "# A `b` – c!\n```\n# no heading\n```\n## Tail ##\n"
    assert anchors(text) == {"a-b--c", "tail"}


def test_a_file_over_the_limit_is_named_with_its_length(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("x\n" * 11)
    (tmp_path / "fits.py").write_text("x\n" * 10)
    [fault] = too_long(tmp_path, [Path("long.py"), Path("fits.py")], limit=10)
    assert fault.startswith("long.py: 11 lines")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.py", True), ("Makefile", True), ("a_pb2.py", False), ("a_pb2_grpc.py", False), ("uv.lock", False)],
)
def test_generated_files_may_be_long(name: str, expected: bool) -> None:
    assert is_written_by_hand(Path(name)) is expected


def test_ignored_files_are_not_looked_at(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, timeout=30)
    (tmp_path / ".gitignore").write_text("built/\n")
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "page.md").touch()
    (tmp_path / "page.md").touch()
    assert checkout_files(tmp_path) == [Path(".gitignore"), Path("page.md")]
