"""The command `reactant-export`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from reactant_core.bundle.errors import BundleError
from reactant_export.argument_types import ArgumentTypeError
from reactant_export.declarations import PLATFORMS, ExportSpec
from reactant_export.from_jax import PRECISIONS, export_spec
from reactant_export.report_text import report_text
from reactant_export.verify import verify_bundle


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0 when all is well, 1 when a bundle has faults or cannot be written, 2 for wrong arguments, 130
    when interrupted. What the exporter's own code raises is not caught: its traceback says where.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (BundleError, ArgumentTypeError) as error:
        for fault in error.faults:
            sys.stderr.write(f"reactant-export: {fault}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("reactant-export: interrupted\n")
        return 130


def _jax(options: argparse.Namespace) -> int:
    spec = _spec(options.source)
    changes = {
        "batch_sizes": options.batch_sizes,
        "matmul_precision": options.matmul_precision,
        "platforms": options.platforms,
    }
    spec = dataclasses.replace(spec, **{key: value for key, value in changes.items() if value is not None})
    try:
        path = export_spec(spec, options.out, verify=options.verify)
    except OSError as error:
        raise BundleError(f"{options.out}: not written: {error}") from error
    # Each program has just been run and compared, unless that was not wanted.
    sys.stdout.write(report_text(verify_bundle(path, execute=False)))
    return 0


def _verify(options: argparse.Namespace) -> int:
    report = verify_bundle(options.directory, execute=options.execute)
    sys.stdout.write(report_text(report))
    return 0 if report.ok else 1


def _spec(source: str) -> ExportSpec:
    place, colon, function = source.rpartition(":")
    if not colon or not place or not function:
        raise BundleError(f"{source!r} is not of the form MODULE:FUNCTION or FILE.py:FUNCTION")
    make = getattr(_module(place), function, None)
    if make is None:
        raise BundleError(f"{place} has no {function}")
    if callable(make):
        _check_no_arguments(source, make)
        make = make()
    spec = make
    if not isinstance(spec, ExportSpec):
        raise BundleError(f"{source} must give a reactant_export.ExportSpec, not {type(spec).__name__}")
    return spec


def _check_no_arguments(source: str, make: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(make)
    except ValueError:  # some that are written in C have none
        return
    try:
        signature.bind()
    except TypeError:
        raise BundleError(
            f"{source} takes arguments, {signature}: name a function without any that returns a "
            "reactant_export.ExportSpec"
        ) from None


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # something that the module itself imports
            raise BundleError(f"there is no module {place}; a file is given as path/to/file.py") from error
    path = Path(place)
    if not path.is_file():
        raise BundleError(f"there is no file {place}")
    description = importlib.util.spec_from_file_location(path.stem, path)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[path.stem] = module  # where dataclasses and pickle look a class's module up
    sys.path.insert(0, str(path.parent.resolve()))
    description.loader.exec_module(module)
    return module


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: accepted are numbers from 1, with commas, such as 1,8,32"
        )
    return sizes


def _platforms(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not set(names) <= set(PLATFORMS):
        raise argparse.ArgumentTypeError(
            f"{text!r}: accepted are {', '.join(PLATFORMS)}, with commas between"
        )
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reactant-export", description="Writes and verifies model bundles.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    jax = commands.add_parser(
        "jax",
        help="write a bundle from a JAX function",
        description="Writes a bundle from a JAX function and its weights, and checks what was written "
        "against the function.",
    )
    jax.add_argument(
        "source",
        metavar="MODULE:FUNCTION",
        help="what gives the reactant_export.ExportSpec: a function without arguments in a module, or in "
        "a file given as path/to/file.py:FUNCTION",
    )
    jax.add_argument("out", metavar="OUT_DIR", type=Path, help="the bundle's directory, named like the model")
    jax.add_argument("--batch-sizes", type=_sizes, metavar="N,N,...", help="in place of the spec's")
    jax.add_argument("--matmul-precision", choices=PRECISIONS, help="in place of the spec's")
    jax.add_argument(
        "--platforms", type=_platforms, metavar="P,P,...", help="in place of the spec's: cpu, cuda"
    )
    jax.add_argument("--no-verify", dest="verify", action="store_false", help="do not run what was written")
    jax.set_defaults(run=_jax)

    verify = commands.add_parser(
        "verify",
        help="validate a bundle and print what it holds",
        description="Validates any bundle, runs its programs on random inputs and prints what it found. "
        "Exit code 1: it has faults.",
    )
    verify.add_argument("directory", metavar="DIR", type=Path)
    verify.add_argument(
        "--no-execute", dest="execute", action="store_false", help="check the files only, compile nothing"
    )
    verify.set_defaults(run=_verify)
    return parser
