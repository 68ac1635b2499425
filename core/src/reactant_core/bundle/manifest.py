"""`manifest.yaml`: what a bundle takes and gives, and how it may be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, final

from reactant_core.bundle.batching import check_extent, checked_batching, read_batch_sizes, read_variants
from reactant_core.bundle.errors import BundleError, FaultList, instead, shown
from reactant_core.bundle.names import valid_model_name
from reactant_core.bundle.tensor_reader import BATCH_LETTERS, read_tensors, unknown_keys
from reactant_core.bundle.tensors import TensorSpec, concrete_shape
from reactant_core.bundle.yaml_safe import YamlError, parse_yaml

__all__ = ["Manifest", "TensorSpec", "concrete_shape", "parse_manifest"]

_VERSIONS: Final[Mapping[str, str]] = {"3": "3", "2": "2", "2.0": "2"}
_KEYS: Final = (
    "format_version",
    "executable_inputs",
    "executable_outputs",
    "batching",
    "client_inputs",
    "client_outputs",
    "input_shapes",
    "kind",
    "meta",
    "idempotent",
    "internal",
    "provenance",
)
# The Julia server's writer puts these in; the directory's name is the model's name all the same.
_KEYS_OF_VERSION_2: Final = (*_KEYS, "name", "description")
_MODEL_ONLY: Final = ("executable_inputs", "executable_outputs", "batching", "input_shapes")


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest without faults.

    A model declares what its programs take and give in `executable_inputs` and
    `executable_outputs`; hooks that change the I/O say what clients see in `client_inputs` and
    `client_outputs`. A meta has neither programs nor weights, so it has only the client lists, and
    needs both.

    Attributes:
        format_version: `"3"`, or `"2"` for a bundle of the Julia server.
        executable_inputs: arguments of every program, before the weights; empty for a meta.
        executable_outputs: results of every program; empty for a meta.
        compiled_batch_sizes: ascending; empty when no input has a batch axis.
        client_inputs: what clients send when it differs from `executable_inputs`.
        client_outputs: what clients get when it differs from `executable_outputs`.
        input_shapes: per variant the size of each variable axis, by letter; empty without
            variants.
        kind: `"model"` or `"meta"`.
        meta_calls: models a meta may call; empty for a model and for a compute-only meta.
        idempotent: whether a request may run twice without harm, None when the manifest is silent
            (`Bundle.idempotent` decides then).
        internal: only metas may call it.
        provenance: free-form, read-only.
    """

    format_version: str
    executable_inputs: tuple[TensorSpec, ...]
    executable_outputs: tuple[TensorSpec, ...]
    compiled_batch_sizes: tuple[int, ...] = ()
    client_inputs: tuple[TensorSpec, ...] | None = None
    client_outputs: tuple[TensorSpec, ...] | None = None
    input_shapes: tuple[Mapping[str, int], ...] = ()
    kind: Literal["model", "meta"] = "model"
    meta_calls: tuple[str, ...] = ()
    idempotent: bool | None = None
    internal: bool = False
    provenance: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What clients send."""
        return self.executable_inputs if self.client_inputs is None else self.client_inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What clients get."""
        return self.executable_outputs if self.client_outputs is None else self.client_outputs

    @property
    def batched(self) -> bool:
        """Whether requests can share an execution: every executable tensor has a batch axis."""
        tensors = (*self.executable_inputs, *self.executable_outputs)
        return bool(tensors) and all(tensor.batch_axis is not None for tensor in tensors)


def parse_manifest(data: bytes) -> Manifest:
    """Reads a manifest.

    Raises:
        BundleError: with every fault found; a text that cannot be read as YAML has one.
    """
    try:
        document = parse_yaml(data)
    except YamlError as error:
        raise BundleError(str(error)) from error
    faults = FaultList()
    for fault in document.faults:
        faults.add(fault)
    if not isinstance(document.value, dict):
        faults.add(f"must be a mapping that begins with format_version, not {shown(document.value)}")
        raise BundleError(faults.sentences())
    manifest = _read_manifest(faults, document.value)
    faults.raise_if_any()
    return manifest


def _read_manifest(faults: FaultList, raw: dict[str, object]) -> Manifest:
    version = _read_version(faults, raw.get("format_version"))
    unknown_keys(faults, raw, _KEYS_OF_VERSION_2 if version == "2" else _KEYS, "")
    kind = _read_kind(faults, raw.get("kind", "model"))
    if kind == "meta":
        for key in _MODEL_ONLY:
            if key in raw:
                faults.add(f"{key}: a meta has no programs; its I/O is client_inputs and client_outputs")
    elif "meta" in raw:
        faults.add("meta: is for kind: meta only")

    def tensors(key: str, *, required: bool) -> tuple[TensorSpec, ...] | None:
        if key not in raw and not required:
            return None
        client = key.startswith("client_")
        return read_tensors(faults, raw.get(key), key, client=client, column_major=version == "2")

    meta = kind == "meta"
    client_inputs = tensors("client_inputs", required=meta)
    client_outputs = tensors("client_outputs", required=meta)
    inputs: tuple[TensorSpec, ...] | None = ()
    outputs: tuple[TensorSpec, ...] | None = ()
    sizes: tuple[int, ...] | None = ()
    variants: tuple[Mapping[str, int], ...] = ()
    calls: tuple[str, ...] = ()
    if meta:
        calls = _read_calls(faults, raw.get("meta"))
        _check_meta_axes(faults, (*(client_inputs or ()), *(client_outputs or ())))
    else:
        inputs = tensors("executable_inputs", required=True)
        outputs = tensors("executable_outputs", required=True)
        sizes = read_batch_sizes(faults, version, raw.get("batching"))
        if inputs is not None:
            variants = read_variants(faults, raw.get("input_shapes"), inputs)
            sizes = checked_batching(faults, version, inputs, outputs or (), sizes)
    check_extent(
        faults,
        [*(inputs or ()), *(outputs or ()), *(client_inputs or ()), *(client_outputs or ())],
        sizes,
        variants,
    )
    internal = _read_flag(faults, "internal", raw.get("internal", False))
    if internal and meta:
        faults.add("internal: a meta cannot be internal, since no meta may call a meta")
    return Manifest(
        format_version=version,
        executable_inputs=inputs or (),
        executable_outputs=outputs or (),
        compiled_batch_sizes=sizes or (),
        client_inputs=client_inputs,
        client_outputs=client_outputs,
        input_shapes=variants,
        kind=kind,
        meta_calls=calls,
        idempotent=_read_flag(faults, "idempotent", raw["idempotent"]) if "idempotent" in raw else None,
        internal=internal,
        provenance=_read_provenance(faults, raw.get("provenance")),
    )


def _read_version(faults: FaultList, value: object) -> str:
    # Unquoted, YAML makes a number of it; what is meant is as plain.
    text = str(value) if type(value) in (int, float) and abs(value) < 100 else value  # type: ignore[arg-type]
    version = _VERSIONS.get(text) if isinstance(text, str) else None
    if version is None:
        faults.add(f'format_version: must be "3" (or "2" or "2.0" for the Julia server\'s){instead(value)}')
        return "3"
    return version


def _read_kind(faults: FaultList, value: object) -> Literal["model", "meta"]:
    if value == "meta":
        return "meta"
    if value != "model":
        faults.add(f"kind: must be model or meta{instead(value)}")
    return "model"


def _read_flag(faults: FaultList, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        faults.add(f"{key}: must be true or false{instead(value)}")
        return False
    return value


def _read_calls(faults: FaultList, meta: object) -> tuple[str, ...]:
    if not isinstance(meta, dict):
        faults.add(f"meta: must be a mapping such as {{calls: [a, b]}}{instead(meta)}")
        return ()
    unknown_keys(faults, meta, ("calls",), "meta")
    calls = meta.get("calls")
    if not isinstance(calls, list):
        faults.add(f"meta.calls: must be a list of model names (empty for none){instead(calls)}")
        return ()
    names: dict[str, None] = {}
    for name in calls:
        if not isinstance(name, str) or not valid_model_name(name):
            faults.add(f"meta.calls: {shown(name)} cannot be a model's name")
        elif name in names:
            faults.add(f"meta.calls: {shown(name)} is listed twice")
        else:
            names[name] = None
    return tuple(names)


def _check_meta_axes(faults: FaultList, tensors: tuple[TensorSpec, ...]) -> None:
    for spec in tensors:
        if spec.batch_axis is not None:
            letter = next(iter(BATCH_LETTERS.intersection(spec.axes)))
            faults.add(
                f"{shown(spec.name)}: a meta has no batch axis; use another letter than {letter} and "
                "give its size, or -1, in dims"
            )


def _read_provenance(faults: FaultList, value: object) -> Mapping[str, object]:
    if value is None:
        return MappingProxyType({})
    if not isinstance(value, dict):
        faults.add(f"provenance: must be a mapping{instead(value)}")
        return MappingProxyType({})
    return MappingProxyType({key: _frozen(item) for key, item in value.items()})


def _frozen(value: object) -> object:
    # Recursion is bounded: parse_yaml limits depth and, aliases expanded, the number of values.
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value
