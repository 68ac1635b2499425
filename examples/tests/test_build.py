"""Which bundles are built, and when. The model built here is a package written for the test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from textwrap import dedent

import pytest

from reactant_examples import build
from reactant_examples.build import build_missing, main
from reactant_examples.catalogue import EXAMPLES, Example, is_current, source_stamp

BUILDER = """
    def write(path, provenance):
        path.mkdir(exist_ok=True)
        (path / "manifest.yaml").write_text(f"provenance: {{stamp: {provenance['stamp']}}}")
        (path / "weights").write_text("first")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Example]:
    """Makes the sources of an example of that name, importable for this test."""
    sources = tmp_path / "sources"
    monkeypatch.syspath_prepend(str(sources))

    def make(name: str) -> Example:
        (sources / name).mkdir(parents=True)
        (sources / name / "__init__.py").touch()
        edit(sources / name, BUILDER)
        for module in (name, f"{name}.bundle"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        return Example(name, "made for a test", ("numpy",))

    return make


def edit(folder: Path, source: str) -> None:
    (folder / "bundle.py").write_text(dedent(source))


def reload(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process would see: the module's sources as they are now."""
    monkeypatch.delitem(sys.modules, f"{name}.bundle")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "bundles"


def visible(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if path.name != ".lock")


def test_what_is_missing_is_built_with_a_line_on_stderr(
    package: Callable[[str], Example], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = package("toy_missing")
    assert build_missing([example], out) == []
    assert is_current(out / "toy_missing", source_stamp(example))
    assert visible(out) == ["toy_missing"]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("building toy_missing (made for a test) ... ")
    assert shown.err.count("\n") == 1


def test_what_is_up_to_date_is_left_alone_without_a_word(
    package: Callable[[str], Example], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = package("toy_current")
    build_missing([example], out)
    (out / "toy_current" / "weights").write_text("mine")
    capsys.readouterr()
    assert build_missing([example], out) == []
    assert (out / "toy_current" / "weights").read_text() == "mine"
    assert capsys.readouterr().err == ""


def test_force_builds_what_is_up_to_date(package: Callable[[str], Example], out: Path) -> None:
    example = package("toy_forced")
    build_missing([example], out)
    (out / "toy_forced" / "weights").write_text("mine")
    assert build_missing([example], out, force=True) == []
    assert (out / "toy_forced" / "weights").read_text() == "first"


def test_changed_sources_are_built_again(
    package: Callable[[str], Example], tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = package("toy_changed")
    build_missing([example], out)
    before = source_stamp(example)
    edit(tmp_path / "sources" / "toy_changed", BUILDER.replace("first", "second edition"))
    reload("toy_changed", monkeypatch)
    assert source_stamp(example) != before
    assert build_missing([example], out) == []
    assert (out / "toy_changed" / "weights").read_text() == "second edition"
    assert visible(out) == ["toy_changed"]


def test_a_failed_build_is_told_and_the_others_are_built(
    package: Callable[[str], Example],
    tmp_path: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken, sound = package("toy_broken"), package("toy_sound")
    build_missing([broken], out)
    edit(
        tmp_path / "sources" / "toy_broken",
        """
        def write(path, provenance):
            raise OSError("disk full")
        """,
    )
    reload("toy_broken", monkeypatch)
    assert build_missing([broken, sound], out) == ["toy_broken"]
    assert (out / "toy_broken" / "weights").read_text() == "first"
    assert visible(out) == ["toy_broken", "toy_sound"]
    assert "failed\n  OSError: disk full\n" in capsys.readouterr().err


def test_an_interrupt_ends_the_line_and_the_run(
    package: Callable[[str], Example],
    tmp_path: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example, later = package("toy_interrupted"), package("toy_later")
    edit(
        tmp_path / "sources" / "toy_interrupted",
        """
        def write(path, provenance):
            raise KeyboardInterrupt
        """,
    )
    monkeypatch.setattr(build, "EXAMPLES", (example, later))

    assert main(["--out", str(out)]) == 130
    assert visible(out) == []
    assert capsys.readouterr().err == "building toy_interrupted (made for a test) ... interrupted\n"


def test_a_place_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    for out, reason in (
        (tmp_path / "file", f"{tmp_path}/file: is no directory"),
        (tmp_path / "file" / "deeper", f"{tmp_path}/file/deeper: Not a directory"),
        (Path("/proc/nowhere"), "/proc/nowhere: No such file or directory"),
    ):
        assert main(["--out", str(out)]) == 1
        assert capsys.readouterr().err == f"cannot build in {out}: {reason}\n"


def test_a_directory_without_a_manifest_is_not_current(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert not any(is_current(tmp_path / name, "0" * 64) for name in ("empty", "file", "absent"))


def test_an_unknown_model_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["minilm", "resnet"])
    assert (
        "no model resnet; there are minilm, digits, digit_finder, search, page_reader"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_run_with_nothing_to_build_loads_nothing_heavy(out: Path) -> None:
    for example in EXAMPLES:
        (out / example.name).mkdir(parents=True)
        (out / example.name / "manifest.yaml").write_text(f"stamp: {source_stamp(example)}")
    script = dedent("""
        import sys
        from reactant_examples.build import main
        status = main(["--out", sys.argv[1]])
        heavy = {"jax", "numpy", "sklearn", "tokenizers", "reactant_export"}
        print(status, *sorted(heavy & set(sys.modules)))
    """)
    ran = run([sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
