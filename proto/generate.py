"""Regenerate the modules of every .proto file in this dist, or check that they are up to date.

    python proto/generate.py            write them
    python proto/generate.py --check    exit 1 with a summary when they differ from what is committed

For each `NAME.proto` below `src/` this makes, beside it,

- `NAME_pb2.py`: loads the descriptor into the private pool (`reactant_proto.pool`),
- `NAME_pb2.pyi`: its types, by mypy-protobuf,
- `NAME_pb2_grpc.py` and `.pyi`, when the file has a service: stub and servicer, by grpcio-tools.

The result depends on the .proto files and the versions of those two tools, which the lock file fixes.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.resources
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

SOURCE = Path(__file__).resolve().parent / "src"
PACKAGE = "reactant_proto"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
WELL_KNOWN = "google/protobuf/"
ANY = "google/protobuf/any.proto"
DIFF_LINES = 12
CHUNK_BYTES = 64


class GenerationError(Exception):
    """The .proto files cannot be turned into modules; says which and why."""


def generate(source: Path) -> dict[Path, str]:
    """Text of every generated module by its path relative to `source`, the folder that holds the package.

    Raises:
        GenerationError: protoc refused a file, or a file uses what the private pool does not offer.
    """
    protos = sorted(path.relative_to(source).as_posix() for path in (source / PACKAGE).rglob("*.proto"))
    if not protos:
        raise GenerationError(f"no .proto file below {source / PACKAGE}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        files = _run_protoc(source, protos, out)
        faults = [fault for file in files for fault in _unsupported(file)]
        if faults:
            raise GenerationError("\n".join(faults))
        return dict(sorted(pair for file in files for pair in _modules(file, out)))


def committed(source: Path) -> dict[Path, str]:
    """Text of the generated modules that are in `source` now, by relative path."""
    paths = {path for pattern in GENERATED for path in (source / PACKAGE).rglob(pattern)}
    return {path.relative_to(source): path.read_text(encoding="utf-8") for path in sorted(paths)}


def write(source: Path, modules: Mapping[Path, str]) -> None:
    """Make the generated modules in `source` exactly `modules`; remove those of .proto files now gone."""
    for path in committed(source).keys() - modules.keys():
        (source / path).unlink()
    for path, text in modules.items():
        (source / path).write_text(text, encoding="utf-8")


def differences(found: Mapping[Path, str], expected: Mapping[Path, str]) -> list[str]:
    """What separates two sets of modules, one entry per file with the first lines of its diff."""
    summary = []
    for path in sorted(found.keys() | expected.keys()):
        if path not in found:
            summary.append(f"{path}: missing")
        elif path not in expected:
            summary.append(f"{path}: no .proto file makes it")
        elif found[path] != expected[path]:
            lines = difflib.unified_diff(
                found[path].splitlines(),
                expected[path].splitlines(),
                "committed",
                "generated",
                n=0,
                lineterm="",
            )
            diff = list(lines)
            shown = diff[:DIFF_LINES] + (["..."] if len(diff) > DIFF_LINES else [])
            summary.append("\n    ".join([f"{path}: out of date", *shown]))
    return summary


def _run_protoc(source: Path, protos: list[str], out: Path) -> list[FileDescriptorProto]:
    descriptors = out / "descriptors.binpb"
    scripts = Path(sys.executable).parent
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"--proto_path={source}",
        f"--proto_path={importlib.resources.files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        f"--descriptor_set_out={descriptors}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        # Methods are not abstract in the runtime classes: one that is left out answers UNIMPLEMENTED.
        f"--mypy_grpc_out=quiet,generate_concrete_servicer_stubs:{out}",
        *protos,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (fixed command)
    if result.returncode != 0:
        raise GenerationError(result.stderr.strip())
    return list(FileDescriptorSet.FromString(descriptors.read_bytes()).file)


def _unsupported(file: FileDescriptorProto) -> Iterator[str]:
    if file.syntax != "proto3":
        yield f"{file.name}: syntax must be proto3"
    if file.extension or any(message.extension for message in file.message_type):
        yield f"{file.name}: extensions are not supported"
    for dependency in file.dependency:
        if dependency == ANY:
            yield f"{file.name}: import {ANY}: its contents would be looked up in the default pool"
        elif not dependency.startswith((f"{PACKAGE}/", WELL_KNOWN)):
            yield f"{file.name}: import {dependency}: only {PACKAGE}/ and {WELL_KNOWN} are accepted"


def _modules(file: FileDescriptorProto, out: Path) -> Iterator[tuple[Path, str]]:
    stem = Path(file.name).with_suffix("")
    yield stem.with_name(f"{stem.name}_pb2.py"), _message_module(file)
    suffixes = ["_pb2.pyi", *(["_pb2_grpc.py", "_pb2_grpc.pyi"] if file.service else [])]
    for suffix in suffixes:
        path = stem.with_name(stem.name + suffix)
        yield path, (out / path).read_text(encoding="utf-8")


def _message_module(file: FileDescriptorProto) -> str:
    serialized = file.SerializeToString(deterministic=True)
    chunks = (serialized[at : at + CHUNK_BYTES] for at in range(0, len(serialized), CHUNK_BYTES))
    return "\n".join(
        [
            f"# Generated from {file.name} by generate.py. Do not edit.",
            f"from {PACKAGE}.pool import load as _load",
            *(_import_line(dependency) for dependency in file.dependency),
            "",
            "DESCRIPTOR = _load(",
            *(f"    {chunk!r}" for chunk in chunks),
            "    , __name__, globals())",
            "",
        ]
    )


def _import_line(dependency: str) -> str:
    return f"import {dependency.removesuffix('.proto').replace('/', '.')}_pb2  # noqa: F401"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Regenerate the protobuf modules of reactant-proto.")
    parser.add_argument(
        "--check", action="store_true", help="only compare; exit 1 if a module is out of date"
    )
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder that holds the package")
    options = parser.parse_args(arguments)
    try:
        modules = generate(options.source)
    except GenerationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not options.check:
        write(options.source, modules)
        return 0
    summary = differences(committed(options.source), modules)
    if summary:
        sys.stderr.write("\n".join([*summary, "Run proto/generate.py and commit the result.", ""]))
    return 1 if summary else 0


if __name__ == "__main__":
    sys.exit(main())
