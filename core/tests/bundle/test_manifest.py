from __future__ import annotations

from types import MappingProxyType

import pytest

from reactant_core.bundle.dtypes import BY_TOKEN
from reactant_core.bundle.manifest import TensorSpec, concrete_shape, parse_manifest

VISION = """\
format_version: "3"
executable_inputs:
  - {name: image, dtype: u8, shape: nchw, dims: {c: 3, h: -1, w: -1}}
  - {name: scale, dtype: f32, shape: ""}
executable_outputs:
  - {name: logits, dtype: f32, shape: nk, dims: {k: 1000}}
  - {name: map, dtype: bf16, shape: hwb, dims: {h: -1, w: 7}}
batching: {compiled_batch_sizes: [8, 1, 32]}
input_shapes: [{h: 224, w: 224}, {w: 192, h: 320}]
client_inputs:
  - {name: path, dtype: bytes, shape: n}
client_outputs:
  - {name: label, dtype: bytes, shape: nk, dims: {k: -1}}
idempotent: true
internal: true
provenance: {tool: x, when: 2024-01-02, sizes: [1, {a: 2}]}
"""

META = """\
format_version: "3"
kind: meta
meta: {calls: [encode, score.v1]}
client_inputs: [{name: text, dtype: bytes, shape: t, dims: {t: -1}}]
client_outputs: [{name: score, dtype: f32, shape: ""}]
"""


def test_a_model_with_everything() -> None:
    manifest = parse_manifest(VISION.encode())
    u8, f32, bf16, bytes_ = (BY_TOKEN[t] for t in ("u8", "f32", "bf16", "bytes"))
    assert manifest.format_version == "3"
    assert manifest.executable_inputs == (
        TensorSpec("image", u8, "nchw", (-1, 3, -1, -1), 0),
        TensorSpec("scale", f32, "", (), None),
    )
    assert manifest.executable_outputs == (
        TensorSpec("logits", f32, "nk", (-1, 1000), 0),
        TensorSpec("map", bf16, "hwb", (-1, 7, -1), 2),
    )
    assert manifest.compiled_batch_sizes == (1, 8, 32)
    assert manifest.input_shapes == ({"h": 224, "w": 224}, {"h": 320, "w": 192})
    assert manifest.inputs == manifest.client_inputs == (TensorSpec("path", bytes_, "n", (-1,), 0),)
    assert manifest.outputs == manifest.client_outputs == (TensorSpec("label", bytes_, "nk", (-1, -1), 0),)
    assert (manifest.kind, manifest.meta_calls) == ("model", ())
    assert manifest.idempotent is True
    assert manifest.internal is True
    assert manifest.provenance == {"tool": "x", "when": "2024-01-02", "sizes": (1, {"a": 2})}
    assert manifest.batched is False


def test_a_manifest_cannot_be_changed() -> None:
    manifest = parse_manifest(VISION.encode())
    assert isinstance(manifest.provenance, MappingProxyType)
    assert isinstance(manifest.provenance["sizes"], tuple)
    assert isinstance(manifest.input_shapes[0], MappingProxyType)


def test_a_meta() -> None:
    manifest = parse_manifest(META.encode())
    assert manifest.kind == "meta"
    assert manifest.meta_calls == ("encode", "score.v1")
    assert manifest.executable_inputs == manifest.executable_outputs == ()
    assert [t.name for t in (*manifest.inputs, *manifest.outputs)] == ["text", "score"]
    assert (manifest.batched, manifest.idempotent, manifest.internal) == (False, None, False)


def test_a_compute_only_meta_calls_nothing() -> None:
    assert parse_manifest(META.replace("[encode, score.v1]", "[]").encode()).meta_calls == ()


def test_without_client_lists_clients_see_the_executable_ones() -> None:
    manifest = parse_manifest(
        b'format_version: "3"\n'
        b"executable_inputs: [{name: x, dtype: f32, shape: nk, dims: {k: 4}}]\n"
        b"executable_outputs: [{name: y, dtype: f32, shape: nk, dims: {k: 2}}]\n"
        b"batching: {compiled_batch_sizes: [4]}\n"
    )
    assert manifest.inputs == manifest.executable_inputs
    assert manifest.outputs == manifest.executable_outputs
    assert manifest.batched is True


@pytest.mark.parametrize("written", ['"3"', "3", "'3'"])
def test_version_3_may_be_a_number(written: str) -> None:
    assert parse_manifest(META.replace('"3"', written).encode()).format_version == "3"


@pytest.mark.parametrize("written", ['"2"', "2", '"2.0"', "2.0"])
def test_version_2_is_column_major(written: str) -> None:
    manifest = parse_manifest(
        f"format_version: {written}\n"
        "name: other\n"
        "description: from Julia\n"
        "executable_inputs: [{name: x, dtype: f32, shape: whcn, dims: {w: 5, h: 6, c: 3}}]\n"
        "executable_outputs: [{name: y, dtype: f32, shape: kn, dims: {k: 10}}]\n"
        "batching: {compiled_batch_sizes: [1]}\n"
        "client_outputs: [{name: z, dtype: i64, shape: ba, dims: {a: -1}}]\n".encode()
    )
    assert manifest.format_version == "2"
    (image,) = manifest.executable_inputs
    assert (image.axes, image.dims, image.batch_axis) == ("nchw", (-1, 3, 6, 5), 0)
    assert manifest.executable_outputs[0].dims == (-1, 10)
    assert (manifest.outputs[0].axes, manifest.outputs[0].batch_axis) == ("ab", 1)


@pytest.mark.parametrize("sizes", ["[]", "[1]"])
def test_version_2_gives_batch_sizes_also_without_batch_axes(sizes: str) -> None:
    manifest = parse_manifest(
        'format_version: "2.0"\n'
        "executable_inputs: [{name: x, dtype: f32, shape: c, dims: {c: 4}}]\n"
        "executable_outputs: [{name: y, dtype: f32, shape: c, dims: {c: 4}}]\n"
        f"batching: {{compiled_batch_sizes: {sizes}}}\n".encode()
    )
    assert manifest.compiled_batch_sizes == ()


def test_l12_a_tensor_may_be_called_no() -> None:
    text = VISION.replace("name: scale", "name: no").replace("name: logits", "name: on")
    manifest = parse_manifest(text.encode())
    assert manifest.executable_inputs[1].name == "no"
    assert manifest.executable_outputs[0].name == "on"


def test_concrete_shapes() -> None:
    manifest = parse_manifest(VISION.encode())
    image, scale = manifest.executable_inputs
    assert concrete_shape(image, 8, manifest.input_shapes[1]) == (8, 3, 320, 192)
    assert concrete_shape(image, None) == (-1, 3, -1, -1)
    assert concrete_shape(scale, 8) == ()
    assert concrete_shape(manifest.executable_outputs[1], 32) == (-1, 7, 32)


def test_what_a_spec_says_of_itself() -> None:
    image, scale = parse_manifest(VISION.encode()).executable_inputs
    logits = parse_manifest(VISION.encode()).executable_outputs[0]
    assert (image.rank, image.variable_axes) == (4, (2, 3))
    assert (scale.rank, scale.variable_axes) == (0, ())
    assert logits.dims == (-1, 1000)
    assert image.dims == (-1, 3, -1, -1)
