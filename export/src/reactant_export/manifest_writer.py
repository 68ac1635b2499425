"""Writes `manifest.yaml`, as a person would: one line per tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from reactant_export.declarations import TensorDecl

_ENDLESS = 1 << 30


def manifest_text(
    inputs: Sequence[TensorDecl],
    outputs: Sequence[TensorDecl],
    *,
    batch_sizes: Sequence[int] | None,
    input_shapes: Sequence[Mapping[str, int]],
    client_inputs: Sequence[TensorDecl] | None,
    client_outputs: Sequence[TensorDecl] | None,
    idempotent: bool | None,
    internal: bool,
    provenance: Mapping[str, object],
) -> str:
    """A manifest of format version 3. Nothing is checked: reading it back does that.

    Raises:
        yaml.YAMLError: `provenance` holds something other than mappings, lists, text, numbers and bools.
    """
    parts = [_block({"format_version": "3"})]
    parts.append(_tensors("executable_inputs", inputs))
    parts.append(_tensors("executable_outputs", outputs))
    if batch_sizes is not None:
        parts.append(f"batching: {_line({'compiled_batch_sizes': list(batch_sizes)})}\n")
    if client_inputs is not None:
        parts.append(_tensors("client_inputs", client_inputs))
    if client_outputs is not None:
        parts.append(_tensors("client_outputs", client_outputs))
    if input_shapes:
        parts.append("input_shapes:\n" + "".join(f"  - {_line(dict(shape))}\n" for shape in input_shapes))
    if idempotent is not None:
        parts.append(_block({"idempotent": idempotent}))
    if internal:
        parts.append(_block({"internal": True}))
    if provenance:
        parts.append(_block({"provenance": _plain(provenance)}))
    return "".join(parts)


def meta_manifest_text(
    inputs: Sequence[TensorDecl],
    outputs: Sequence[TensorDecl],
    *,
    calls: Sequence[str],
    idempotent: bool | None,
    provenance: Mapping[str, object],
) -> str:
    """A meta's manifest. Checks nothing and raises as `manifest_text` does."""
    parts = [_block({"format_version": "3", "kind": "meta"}), f"meta: {_line({'calls': list(calls)})}\n"]
    parts.append(_tensors("client_inputs", inputs))
    parts.append(_tensors("client_outputs", outputs))
    if idempotent is not None:
        parts.append(_block({"idempotent": idempotent}))
    if provenance:
        parts.append(_block({"provenance": _plain(provenance)}))
    return "".join(parts)


def _tensors(key: str, tensors: Sequence[TensorDecl]) -> str:
    if not tensors:
        return f"{key}: []\n"
    return f"{key}:\n" + "".join(f"  - {_line(_entry(tensor))}\n" for tensor in tensors)


def _entry(tensor: TensorDecl) -> dict[str, Any]:
    values = dataclasses.asdict(tensor)
    entry = {"name": values["name"], "dtype": values["dtype_token"], "shape": values["shape"]}
    return {**entry, "dims": dict(values["dims"])} if values["dims"] else entry


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _line(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=_ENDLESS, allow_unicode=True
    )
    return text.strip()


def _block(value: Any) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=False, sort_keys=False, width=_ENDLESS, allow_unicode=True
    )
    return text
