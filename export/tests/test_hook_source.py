"""Hooks found in the text of `model.py`, and those that are missing."""

from __future__ import annotations

import pytest

from reactant_core.bundle.manifest import Manifest, parse_manifest
from reactant_export.hook_source import inspect_hooks

BOTH = """
format_version: "3"
executable_inputs: [{name: x, dtype: f32, shape: k, dims: {k: 2}}]
executable_outputs: [{name: y, dtype: f32, shape: k, dims: {k: 2}}]
client_inputs: [{name: text, dtype: bytes, shape: k, dims: {k: 1}}]
client_outputs: [{name: label, dtype: bytes, shape: k, dims: {k: 1}}]
"""
SAME = BOTH.replace(
    "name: text, dtype: bytes, shape: k, dims: {k: 1}", "name: x, dtype: f32, shape: k, dims: {k: 2}"
)
SAME = SAME.replace(
    "name: label, dtype: bytes, shape: k, dims: {k: 1}", "name: y, dtype: f32, shape: k, dims: {k: 2}"
)
INPUTS = "client_inputs differ from executable_inputs and "
OUTPUTS = "client_outputs differ from executable_outputs and "


def manifest(text: str) -> Manifest:
    return parse_manifest(text.encode())


@pytest.mark.parametrize(
    "source",
    [
        "def preprocess(i, r): ...\ndef postprocess(o, r): ...",
        "preprocess = postprocess = lambda tensors, request: tensors",
        "preprocess: object = print\nfrom functools import reduce as postprocess",
        "try:\n    from a import preprocess, postprocess\nexcept ImportError:\n    raise",
        "if True:\n    def preprocess(i, r): ...\nelse:\n    pass\nimport postprocess",
    ],
)
def test_every_way_of_binding_a_name_counts(source: str) -> None:
    found = inspect_hooks(manifest(BOTH), source.encode())

    assert found.names == ("preprocess", "postprocess")
    assert found.faults == ()


def test_what_a_star_import_brings_is_not_known_and_not_missed() -> None:
    assert inspect_hooks(manifest(BOTH), b"from elsewhere import *").faults == ()


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        (b"def preprocess(i, r): ...", (f"{OUTPUTS}model.py has no postprocess",)),
        (
            b"def preproces(i, r): ...\ndef Postprocess(o, r): ...",
            (
                f"{INPUTS}model.py has no preprocess; is preproces meant to be it?",
                f"{OUTPUTS}model.py has no postprocess; is Postprocess meant to be it?",
            ),
        ),
        (
            b"def f(): preprocess = 1\npreprocess: int\n[preprocess for preprocess in ()]\npostprocess = 1",
            (f"{INPUTS}model.py has no preprocess",),
        ),
    ],
)
def test_hooks_that_are_missing(source: bytes, faults: tuple[str, ...]) -> None:
    assert inspect_hooks(manifest(BOTH), source).faults == faults


@pytest.mark.parametrize("source", [b"", b"def setup(bundle): ..."])
def test_nothing_is_needed_where_clients_see_the_programs_tensors(source: bytes) -> None:
    assert inspect_hooks(manifest(SAME), source).faults == ()
