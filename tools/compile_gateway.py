"""Compiles the gateway's data plane to C with mypyc: `python -m tools.compile_gateway [--into DIRECTORY]`.

The same modules, typed as they are, without the interpreter between them; docs/adr/0022-compiled-gateway.md
says what that brings. What is not compiled, and a checkout, run as they stand: an edit to a file must never
be hidden by an older compiled one, so the compiled package lies elsewhere and is found through PYTHONPATH.
"""

# ruff: noqa: S603 - it runs the interpreter it runs in
from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "reactant_gateway"
MODULES: Final = (
    "forward/exchange.py",
    "forward/forwarder.py",
    "forward/listener.py",
    "forward/peek.py",
    "forward/stream.py",
    "forward/tunnel.py",
    "h2/client.py",
    "h2/connection.py",
    "h2/grpc.py",
    "h2/server.py",
    "router.py",
)
"""What every request goes through."""

# Beside the gateway: what its types are taken from.
_TYPES: Final = ("proto/src", "policy/src", "core/src")
_BUILD: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
setup(
    name="compiled",
    packages=[],
    py_modules=[],
    ext_modules=mypycify(
        ["--follow-imports=silent", "--ignore-missing-imports", *sys.argv.pop().split(",")],
        opt_level="2", debug_level="0", group_name="reactant_gateway",
    ),
)
"""


class CompileError(Exception):
    """It cannot be compiled here; the text says what is missing or what the compiler said."""


def missing() -> str | None:
    """What compiling lacks here."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "no headers of this Python (Debian: apt-get install python3-dev)"
    for module in ("mypyc", "setuptools"):
        if find_spec(module) is None:
            return f"{module} is not installed"
    return None


def compiled(root: Path = ROOT) -> Path:
    """A folder for PYTHONPATH with the compiled package of this checkout, made when there is none yet.

    Raises:
        CompileError: see there.
    """
    target = root / ".cache" / "compiled" / _digest(root)
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "made"
            compile_into(made, root)
            if not target.is_dir():
                made.rename(target)
    return target


def compile_into(target: Path, root: Path = ROOT) -> None:
    """Puts the package into `target`, compiled modules beside their sources; replaces what is there.

    Raises:
        CompileError: see there.
    """
    lacks = missing()
    if lacks is not None:
        raise CompileError(f"the gateway cannot be compiled: {lacks}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(root / "services/gateway/src" / PACKAGE, work / PACKAGE, ignore=ignored)
        (work / "build.py").write_text(_BUILD)
        types = os.pathsep.join([str(work), *(str(root / path) for path in _TYPES)])
        modules = ",".join(f"{PACKAGE}/{module}" for module in MODULES)
        ran = subprocess.run(
            [sys.executable, "build.py", "build_ext", "--inplace", modules],
            check=False,
            cwd=work,
            env=os.environ | {"MYPYPATH": types},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise CompileError(f"the gateway does not compile:\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copytree(work / PACKAGE, target / PACKAGE, dirs_exist_ok=True)
        for shared in work.glob("*.so"):
            shutil.copy2(shared, target)


def _digest(root: Path) -> str:
    """Of everything that decides what comes out, so that an old one is never taken for a new one."""
    total = hashlib.sha256(f"{sys.version}\0{version('mypy')}".encode())
    sources = [root / "services/gateway/src", *(root / path for path in _TYPES)]
    for path in [Path(__file__), *(path for source in sources for path in sorted(source.rglob("*.py")))]:
        total.update(path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def main(arguments: Sequence[str]) -> int:
    """Command-line entry point: prints where the package lies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, help="a folder of installed packages to put it into")
    target: Path | None = parser.parse_args(arguments).into
    try:
        if target is None:
            target = compiled()
        else:
            compile_into(target)
    except CompileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
