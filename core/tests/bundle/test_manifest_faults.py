from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_core.bundle.errors import MAX_FAULTS, BundleError
from reactant_core.bundle.manifest import parse_manifest

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


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(BundleError) as caught:
        parse_manifest(text.encode())
    return caught.value.faults


def faults_if_any(text: str) -> tuple[str, ...]:
    try:
        parse_manifest(text.encode())
    except BundleError as error:
        return error.faults
    return ()


# Each row: what is replaced in VISION, by what, and the one fault that gives.
ONE_FAULT = [
    ('"3"', '"4"', 'format_version: must be "3" (or "2" or "2.0" for the Julia server\'s), not \'4\''),
    ('"3"', "[3]", "format_version: must be"),
    ('"3"', "true", "format_version: must be"),
    ('format_version: "3"\n', "", "format_version: must be"),
    ("provenance", "provenence", "unknown key 'provenence' (did you mean 'provenance'?); accepted: format_v"),
    ("idempotent: true", "name: x", "unknown key 'name'"),
    ("idempotent: true", "idempotent: yes", "idempotent: must be true or false, not 'yes'"),
    ("idempotent: true", "idempotent:", "idempotent: must be true or false; it is missing"),
    ("internal: true", "internal: 1", "internal: must be true or false, not 1"),
    ("{tool: x,", "[{tool: x,", "line 17: not valid YAML"),
    ("provenance: {", "internal: {", "line 16: key 'internal' is given twice"),
    ("idempotent: true", "kind: metta", "kind: must be model or meta, not 'metta'"),
    ("idempotent: true", "meta: {calls: []}", "meta: is for kind: meta only"),
    # tensors
    (
        "name: image",
        "name: image, nome: x",
        "executable_inputs[0]: unknown key 'nome' (did you mean 'name'?)",
    ),
    (
        "name: scale",
        "name: image",
        "executable_inputs[1].name: 'image' is already the name of another tensor",
    ),
    ("name: scale", "name: ''", "executable_inputs[1].name: must be text that is not empty, not ''"),
    (
        "name: scale",
        "name: 12",
        "executable_inputs[1].name: must be text that is not empty, not 12; put it in quotes",
    ),
    ("name: scale", "name: true", "must be text that is not empty, not true; put it in quotes"),
    ("name: scale", "name: [a]", "executable_inputs[1].name: must be text that is not empty, not a list"),
    (
        "dtype: u8",
        "dtype: uint8",
        "executable_inputs[0] ('image').dtype: 'uint8' is not a dtype (did you mean 'u8'?)",
    ),
    ("dtype: u8", "dtype: torch.float32", "(did you mean 'f32'?)"),
    ("dtype: u8", "dtype: FP32", "(did you mean 'f32'?)"),
    ("dtype: u8", "dtype: f8_e4m3", "is not a dtype"),
    ("dtype: u8", "dtype: 8", "dtype: 8 is not a dtype"),
    ("dtype: u8", "dtype: bytes", "dtype: bytes is for client_inputs and client_outputs"),
    ("shape: nchw", "shape: nch-", "shape: 'nch-' must consist of ASCII letters"),
    ("shape: nchw", "shape: nché", "must consist of ASCII letters"),
    ("shape: nchw", "shape: nchh", "uses a letter twice"),
    ("shape: nchw", "shape: nbchw", "has two batch axes"),
    ("shape: nchw", "shape: [n, c]", "must be text with one letter per axis, such as nchw, not a list"),
    ("shape: nchw", f"shape: {'a' * 40}", "has 40 axes; at most 32"),
    ("dims: {c: 3,", "dims: {", "executable_inputs[0] ('image').dims: has no size for axis c"),
    ("dims: {c: 3,", "dims: {c: 3, z: 1,", "dims: 'z' is no axis of shape 'nchw'"),
    ("dims: {c: 3,", "dims: {c: 3, n: 1,", "dims: n marks the batch axis"),
    ("dims: {c: 3,", "dims: {c: 0,", "dims.c: must be at least 1, or -1 for a variable axis, not 0"),
    ("dims: {c: 3,", "dims: {c: -2,", "not -2"),
    ("dims: {c: 3,", "dims: {c: 3.0,", "not 3.0"),
    ("dims: {c: 3,", "dims: {c: -1.0,", "not -1.0"),
    ("dims: {c: 3,", "dims: {c: true,", "not true"),
    ("dims: {c: 3,", "dims: {c: '3',", "not '3'"),
    ("dims: {c: 3,", "dims: {c: 9223372036854775808,", "not 9223372036854775808"),
    (
        "dims: {c: 3,",
        "dims: {c: 4611686018427387904,",
        "'image': would take 2^63 bytes or more at its largest",
    ),
    (
        "dims: {c: 3, h: -1, w: -1}",
        "dims: [3]",
        "dims: must be a mapping of axis letters to sizes, not a list",
    ),
    (
        "client_outputs:\n  - {name: label, dtype: bytes, shape: nk, dims: {k: -1}}",
        "client_outputs: []",
        "client_outputs: must be a list of at least one tensor, not a list",
    ),
    (
        "- {name: label, dtype: bytes, shape: nk, dims: {k: -1}}",
        "- label",
        "client_outputs[0]: must be a mapping with the keys",
    ),
    # batching
    (
        "batching: {compiled_batch_sizes: [8, 1, 32]}",
        "batching: [1]",
        "batching: must be a mapping with the key",
    ),
    (
        "compiled_batch_sizes: [8, 1, 32]",
        "compiled_batch_sizes: 8",
        "must be a list of at least one size, not 8",
    ),
    ("compiled_batch_sizes: [8, 1, 32]", "compiled_batch_sizes: []", "must be a list of at least one size"),
    ("[8, 1, 32]", "[8, 0, 32]", "compiled_batch_sizes: 0 is not a size of at least 1"),
    ("[8, 1, 32]", "[8, true]", "compiled_batch_sizes: true is not a size"),
    ("[8, 1, 32]", "[8, 8]", "compiled_batch_sizes: 8 is listed twice"),
    (
        "{compiled_batch_sizes: [8, 1, 32]}",
        "{compiled_batch_sizes: [8], max: 3}",
        "batching: unknown key 'max'",
    ),
    (
        "batching: {compiled_batch_sizes: [8, 1, 32]}\n",
        "",
        "batching: missing; inputs with a batch axis need",
    ),
    # variants
    ("{w: 192, h: 320}", "{h: 320}", "input_shapes[1]: has no size for axis w"),
    ("{w: 192, h: 320}", "{w: 224, h: 224}", "input_shapes[1]: is the same as input_shapes[0]"),
    ("{w: 192, h: 320}", "{w: 192, h: -1}", "input_shapes[1].h: must be a size of at least 1, not -1"),
    ("{w: 192, h: 320}", "{w: 192, h: 320, c: 3}", "input_shapes[1]: 'c' is no variable axis"),
    (
        "{w: 192, h: 320}",
        "[192, 320]",
        "input_shapes[1]: must be a mapping of axis letters to sizes, not a list",
    ),
    ("[{h: 224, w: 224}, {w: 192, h: 320}]", "{h: 224, w: 224}", "input_shapes: must be a list of mappings"),
    (
        "dims: {c: 3, h: -1, w: -1}",
        "dims: {c: 3, h: 4, w: 5}",
        "input_shapes: no executable input has a variable axis",
    ),
    (
        "provenance: {tool: x, when: 2024-01-02, sizes: [1, {a: 2}]}",
        "provenance: 3",
        "provenance: must be a mapping, not 3",
    ),
]


@pytest.mark.parametrize(("old", "new", "fault"), ONE_FAULT)
def test_one_fault(old: str, new: str, fault: str) -> None:
    assert VISION.count(old) == 1
    (found,) = faults_of(VISION.replace(old, new))
    assert fault in found


def test_every_variable_axis_needs_sizes() -> None:
    found = faults_of(VISION.replace("input_shapes: [{h: 224, w: 224}, {w: 192, h: 320}]\n", ""))
    assert found == tuple(
        f"executable_inputs: 'image': axis {letter} is variable (-1), but input_shapes lists no sizes for it"
        for letter in "hw"
    )


META_FAULTS = [
    (
        "meta: {calls: [encode, score.v1]}\n",
        "",
        "meta: must be a mapping such as {calls: [a, b]}; it is missing",
    ),
    (
        "[encode, score.v1]",
        "encode",
        "meta.calls: must be a list of model names (empty for none), not 'encode'",
    ),
    ("[encode, score.v1]", "[encode, encode]", "meta.calls: 'encode' is listed twice"),
    ("[encode, score.v1]", "[../up]", "meta.calls: '../up' cannot be a model's name"),
    ("[encode, score.v1]", "[1]", "meta.calls: 1 cannot be a model's name"),
    (
        "{calls: [encode, score.v1]}",
        "{calls: [], call: 1}",
        "meta: unknown key 'call' (did you mean 'calls'?)",
    ),
    ("shape: t, dims: {t: -1}", "shape: n", "'text': a meta has no batch axis; use another letter than n"),
    ("kind: meta", "kind: meta\nexecutable_inputs: []", "executable_inputs: a meta has no programs"),
    ("kind: meta", "kind: meta\nbatching: {}", "batching: a meta has no programs"),
    ("kind: meta", "kind: meta\ninternal: true", "internal: a meta cannot be internal"),
    (
        "client_outputs",
        "provenance: {}\n#",
        "client_outputs: must be a list of at least one tensor; it is missing",
    ),
]


@pytest.mark.parametrize(("old", "new", "fault"), META_FAULTS)
def test_one_fault_of_a_meta(old: str, new: str, fault: str) -> None:
    assert META.count(old) == 1
    (found,) = faults_of(META.replace(old, new))
    assert fault in found


def test_batch_axes_and_batch_sizes_go_together() -> None:
    plain = (
        'format_version: "3"\n'
        "executable_inputs: [{name: x, dtype: f32, shape: k, dims: {k: 4}}]\n"
        "executable_outputs: [{name: y, dtype: f32, shape: k, dims: {k: 4}}]\n"
    )
    assert parse_manifest(plain.encode()).compiled_batch_sizes == ()
    (fault,) = faults_of(plain + "batching: {compiled_batch_sizes: [1]}\n")
    assert "nothing to batch" in fault
    (fault,) = faults_of(plain.replace("name: y, dtype: f32, shape: k", "name: y, dtype: f32, shape: nk"))
    assert fault == "executable_outputs: 'y' has a batch axis, but no input has one"


def test_all_faults_come_at_once() -> None:
    text = (
        VISION.replace("dtype: u8", "dtype: nope")
        .replace("[8, 1, 32]", "[0]")
        .replace("shape: nk, dims: {k: 1000}", "shape: nk")
        .replace("idempotent: true", "idempotent: maybe")
        .replace("provenance:", "internal:")
    )
    found = faults_of(text)
    for part in ("given twice", "'nope'", "0 is not a size", "no size for axis k", "'maybe'"):
        assert any(part in fault for fault in found), (part, found)
    assert str(BundleError(found)) == "; ".join(found)


def test_faults_are_counted_past_a_limit_and_stay_short() -> None:
    text = 'format_version: "3"\nexecutable_inputs:\n' + f"- {{'{'x' * 500}': 1}}\n" * 1000
    found = faults_of(text)
    assert len(found) == MAX_FAULTS + 1
    assert found[-1].startswith("and ")
    assert max(map(len, found)) < 500


@pytest.mark.slow
def test_l12_a_manifest_full_of_faults_takes_under_a_second() -> None:
    text = 'format_version: "3"\nexecutable_inputs:\n' + "- {kimd: 1}\n" * 12_000
    begin = time.process_time()
    faults_of(text)
    assert time.process_time() - begin < 1


def test_a_manifest_cannot_ask_for_endless_programs() -> None:
    sizes = ", ".join(str(n) for n in range(1, 5000))
    found = faults_of(VISION.replace("[8, 1, 32]", f"[{sizes}]"))
    assert found == ("batching and input_shapes ask for 9998 programs; at most 4096 are accepted",)


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_manifest_or_a_bundle_error(data: bytes) -> None:
    with pytest.raises(BundleError) as caught:
        parse_manifest(data)
    assert caught.value.faults


_SCALARS = st.one_of(
    st.sampled_from(
        ['"3"', "2", "meta", "model", "f32", "bytes", "nchw", "n", "-1", "no", "true", "~", "''"]
    ),
    st.integers(-3, 1 << 70).map(str),
)
_WORDS = """
format_version executable_inputs executable_outputs batching compiled_batch_sizes client_inputs client_outputs
input_shapes kind meta calls idempotent internal provenance name dtype shape dims n c h
"""
_KEYS = st.sampled_from(_WORDS.split())
_FLOW = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(_KEYS, inner), max_size=6).map(
            lambda pairs: f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"
        ),
    ),
    max_leaves=25,
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(_KEYS, _FLOW), max_size=10))
def test_any_arrangement_of_keys_gives_a_manifest_or_a_bundle_error(pairs: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{key}: {value}" for key, value in pairs)
    assert all(faults_if_any(text))


_PLACES = [i for i, line in enumerate(VISION.splitlines()) if line]


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(_PLACES), _FLOW)
def test_any_value_in_place_of_a_line_gives_a_manifest_or_a_bundle_error(place: int, value: str) -> None:
    lines = VISION.splitlines()
    key = lines[place].partition(":")[0]
    lines[place] = f"{key}: {value}"
    assert all(faults_if_any("\n".join(lines)))
