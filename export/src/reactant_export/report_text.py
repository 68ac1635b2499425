"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from reactant_core.bundle.manifest import Manifest, TensorSpec
from reactant_export.verify import ProgramReport, Report

_LABEL_WIDTH = 12


def report_text(report: Report) -> str:
    """What a bundle holds, then its faults; ends with a newline."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    manifest = report.manifest
    if manifest is None:
        yield f"{report.name}: cannot be read"
    else:
        yield f"{report.name}: {manifest.kind}, format {manifest.format_version}"
        yield from _io(manifest)
        if manifest.compiled_batch_sizes:
            yield _row("batch sizes", ", ".join(map(str, manifest.compiled_batch_sizes)))
        for index, shape in enumerate(manifest.input_shapes):
            yield _row(f"shape {index}", ", ".join(f"{letter} = {size}" for letter, size in shape.items()))
        if report.weights:
            yield _row("weights", f"{report.weights} tensors, {_bytes(report.weight_bytes)}")
        for program in report.programs:
            yield _row("program", _program(program))
        if report.hooks:
            yield _row("hooks", ", ".join(report.hooks))
        if report.assets:
            yield _row("assets", ", ".join(report.assets))
        if manifest.meta_calls:
            yield _row("calls", ", ".join(manifest.meta_calls))
    for fault in report.faults:
        yield _row("FAULT", fault)
    yield "ok" if report.ok else f"{len(report.faults)} fault{'s' if len(report.faults) > 1 else ''}"


def _io(manifest: Manifest) -> Iterator[str]:
    for title, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        for tensor in tensors:
            yield _row(title, _tensor(tensor))
    if manifest.client_inputs is not None:
        for tensor in manifest.executable_inputs:
            yield _row("to program", _tensor(tensor))
    if manifest.client_outputs is not None:
        for tensor in manifest.executable_outputs:
            yield _row("from program", _tensor(tensor))


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {text}"


def _tensor(tensor: TensorSpec) -> str:
    axes = []
    for index, (letter, size) in enumerate(zip(tensor.axes, tensor.dims, strict=True)):
        if index == tensor.batch_axis:
            axes.append("batch")
        else:
            axes.append(f"{letter}=any" if size < 0 else str(size))
    return f"{tensor.name} {tensor.dtype.kserve} [{', '.join(axes)}]"


def _program(program: ProgramReport) -> str:
    version = f"StableHLO {program.stablehlo_version}" if program.stablehlo_version else "MLIR text"
    parts = [f"{program.file}: {version}, {_bytes(program.size)}"]
    if program.platforms:
        parts.append("chooses by platform: " + ", ".join(program.platforms))
    if program.custom_calls:
        parts.append("custom calls " + ", ".join(program.custom_calls))
    if program.memory is not None:
        parts.append(f"ran with {_bytes(program.memory.temp_bytes)} of scratch")
    return "; ".join(parts)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
