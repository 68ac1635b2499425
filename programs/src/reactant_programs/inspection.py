"""Parses one untrusted StableHLO artifact after another; a server runs it as a child process.

MLIR's bytecode reader can crash on damaged bytes, or never return: of 100 small artifacts with one bit
flipped, about one does the first and three do the second. So the server never parses bytes it has not seen
parsed here. This script imports neither JAX nor its own package, only the MLIR bindings, and says
everything it finds on its standard output.

Request: 8 bytes length (little endian), the artifact.
Answer:  8 bytes length, JSON; 8 bytes length, the normalised portable artifact (empty when refused).

The normalised artifact has no debug locations, no argument or result attributes (donation and aliasing
marks among them) and a fixed module name, so that its bytes depend on nothing but the computation.
"""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import sys
import time
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo

MAGIC = b"ML\xefR"
PRODUCER_PREFIX = b"StableHLO_v"
PLATFORM_INDEX = "_platform_index"
PLATFORMS_ATTRIBUTE = "reactant.platforms"
MEMORY_LIMIT_BYTES = 8 << 30
PARSE_SECONDS = 5
PARSE_SECONDS_PER_MIB = 2
IDLE_SECONDS = 30.0


class Refusal(Exception):
    """The artifact cannot be used; the text says why."""


def make_context(messages: list[str]) -> ir.Context:
    """A fresh context with the dialects JAX writes; diagnostics go to `messages`, not to stderr."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    sdy.register_dialect(context)
    mpmd.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)

    def record(diagnostic: Any) -> bool:
        messages.append(str(diagnostic.message))
        return True

    context.attach_diagnostic_handler(record)
    return context


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def stamped_version(data: bytes) -> str:
    """The StableHLO version in the producer field of MLIR bytecode: magic, one varint, a C string."""
    end = data.find(b"\0", len(MAGIC), 128)
    producer = data[len(MAGIC) + 1 : end] if end > 0 else b""
    if not producer.startswith(PRODUCER_PREFIX):
        who = producer[:60].decode("ascii", "replace") or "an unknown producer"
        raise Refusal(f"it is MLIR bytecode of {who}, not a StableHLO portable artifact")
    version = producer[len(PRODUCER_PREFIX) :].decode("ascii", "replace")
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdigit() and len(part) < 9 for part in parts):
        raise Refusal(f"its StableHLO version {version!r} is not of the form X.Y.Z")
    current, oldest = stablehlo.get_current_version(), stablehlo.get_minimum_version()
    if version_tuple(version) > version_tuple(current):
        raise Refusal(
            f"it was written for StableHLO {version} and this server reads up to {current}: "
            "export it for an older version or update the server"
        )
    if version_tuple(version) < version_tuple(oldest):
        raise Refusal(f"it was written for StableHLO {version} and this server reads {oldest} to {current}")
    return version


def parse(data: bytes, context: ir.Context, messages: list[str]) -> tuple[ir.Module, str]:
    """The module and its StableHLO version ("" for text)."""
    version = ""
    try:
        if data.startswith(MAGIC):
            version = stamped_version(data)
            return stablehlo.deserialize_portable_artifact(context, data), version
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refusal("it is neither MLIR bytecode nor MLIR text") from None
        if "\0" in text or not text.strip():
            raise Refusal("it is neither MLIR bytecode nor MLIR text")
        return ir.Module.parse(text, context), version
    except Refusal:
        raise
    except Exception as error:
        detail = "; ".join(messages[:3]) or str(error)
        stamp = f"StableHLO {version}, " if version else ""
        reader = stablehlo.get_current_version()
        raise Refusal(f"it does not parse ({stamp}reader {reader}): {detail[:400]}") from None


def find_main(module: ir.Module) -> Any:
    for operation in module.body.operations:
        if (
            operation.operation.name == "func.func"
            and ir.StringAttr(operation.attributes["sym_name"]).value == "main"
        ):
            return operation
    raise Refusal("it has no function @main")


def tensor_type(value_type: ir.Type, what: str, faults: list[str]) -> list[Any]:
    """[element type, [dimensions]] of a static tensor."""
    if not isinstance(value_type, ir.RankedTensorType):
        faults.append(f"{what} is {value_type}, not a tensor of known rank")
        return [str(value_type), []]
    if not value_type.has_static_shape:
        faults.append(
            f"{what} is {value_type}: dynamic shapes are not supported, export one program per shape"
        )
        return [str(value_type.element_type), []]
    return [str(value_type.element_type), list(value_type.shape)]


def walk(module: ir.Module) -> tuple[list[str], list[str]]:
    """Custom-call targets, and faults of operations inside the module."""
    targets: set[str] = set()
    dynamic: list[str] = []

    def visit(operation: Any) -> ir.WalkResult:
        if operation.name == "stablehlo.custom_call":
            targets.add(ir.StringAttr(operation.attributes["call_target_name"]).value)
        for result in operation.results:
            if not dynamic and isinstance(result.type, ir.ShapedType) and not result.type.has_static_shape:
                dynamic.append(f"{operation.name} gives {result.type}: dynamic shapes are not supported")
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return sorted(targets), dynamic


def iter_named(entry: ir.Attribute) -> list[Any]:
    marks = ir.DictAttr(entry)
    return [marks[index] for index in range(len(marks))]


def attribute_names(main: Any) -> list[set[str]]:
    if "arg_attrs" not in main.attributes:
        return [set() for _ in main.arguments]
    return [
        {named.name for named in iter_named(entry)} for entry in ir.ArrayAttr(main.attributes["arg_attrs"])
    ]


def has_platform_index(main: Any) -> bool:
    if not len(main.arguments) or "arg_attrs" not in main.attributes:
        return False
    first = ir.DictAttr(ir.ArrayAttr(main.attributes["arg_attrs"])[0])
    return (
        "jax.global_constant" in first and ir.StringAttr(first["jax.global_constant"]).value == PLATFORM_INDEX
    )


def partition_fault(module: ir.Module) -> list[str]:
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        attributes = module.operation.attributes
        if name in attributes and (count := ir.IntegerAttr(attributes[name]).value) != 1:
            return [f"it is a program for several devices ({name} = {count}); a worker runs on one"]
    return []


def take_platform_index(module: ir.Module, main: Any, faults: list[str]) -> list[str]:
    """Removes an unused leading platform index; gives the platforms' names when it is used."""
    if not has_platform_index(main):
        return []
    if not list(main.arguments[0].uses):
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        main.entry_block.erase_argument(0)
        if "arg_attrs" in main.attributes:
            rest = list(ir.ArrayAttr(main.attributes["arg_attrs"]))[1:]
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(rest)
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs[1:], kind.results))
        return []
    attributes = module.operation.attributes
    if PLATFORMS_ATTRIBUTE not in attributes:
        faults.append(
            "it was exported for several platforms and does not say which (its first argument is a platform "
            "index): export it for one platform, or with reactant-export, which records them"
        )
        return []
    return [ir.StringAttr(entry).value for entry in ir.ArrayAttr(attributes[PLATFORMS_ATTRIBUTE])]


def normalise(module: ir.Module, main: Any) -> None:
    """Drops all that does not change the computation: names, locations, argument and result marks."""
    attributes = module.operation.attributes
    attributes["sym_name"] = ir.StringAttr.get("program")
    for name in ("mhlo.frontend_attributes", "jax.uses_shape_polymorphism"):
        if name in attributes:
            del attributes[name]
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def inspect(data: bytes) -> tuple[dict[str, Any], bytes]:
    """What the artifact holds, and its normalised form.

    Raises:
        Refusal: with every fault found, joined by "; ".
    """
    messages: list[str] = []
    context = make_context(messages)
    with context, ir.Location.unknown(context):
        module, version = parse(data, context, messages)
        main = find_main(module)
        if main.is_external:
            raise Refusal("its function @main has no body")
        faults = partition_fault(module)
        aliased = [
            index
            for index, names in enumerate(attribute_names(main))
            if names & {"tf.aliasing_output", "jax.buffer_donor"}
        ]
        platforms = take_platform_index(module, main, faults)
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs = kind.inputs[1:] if platforms else kind.inputs
        arguments = [tensor_type(t, f"argument {i}", faults) for i, t in enumerate(inputs)]
        results = [tensor_type(t, f"result {i}", faults) for i, t in enumerate(kind.results)]
        targets, dynamic = walk(module)
        faults += [] if faults else dynamic
        if faults:
            raise Refusal("; ".join(faults))
        normalise(module, main)
        try:
            current = stablehlo.get_current_version()
            portable = stablehlo.serialize_portable_artifact(module, current, True)
        except Exception as error:
            detail = "; ".join(messages[:3]) or str(error)
            raise Refusal(f"it has operations outside StableHLO: {detail[:400]}") from None
    found = {
        "arguments": arguments,
        "results": results,
        "custom_calls": targets,
        "stablehlo_version": version,
        "platforms": platforms,
        "aliased": aliased,
    }
    return found, portable


def read_exactly(stream: Any, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return bytes(data)


def serve() -> None:
    """Answers requests until the parent closes the pipe or leaves it idle for IDLE_SECONDS.

    A request that uses more processor time than any sound artifact needs ends the process (SIGXCPU): with
    some damaged bytes MLIR's reader never returns.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not end up between the answers
    requests = sys.stdin.buffer
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            (length,) = struct.unpack("<Q", read_exactly(requests, 8))
            data = read_exactly(requests, length)
        except EOFError:
            return
        portable = b""
        allowed = PARSE_SECONDS + PARSE_SECONDS_PER_MIB * (length >> 20)
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(time.process_time()) + 1 + allowed, resource.RLIM_INFINITY)
        )
        try:
            found, portable = inspect(data)
        except Refusal as refusal:
            found = {"refused": str(refusal)}
        except Exception as error:
            found = {"refused": f"it cannot be inspected: {type(error).__name__}: {error}"[:600]}
        head = json.dumps(found).encode()
        answers.write(struct.pack("<Q", len(head)) + head + struct.pack("<Q", len(portable)) + portable)
        answers.flush()


if __name__ == "__main__":
    serve()
