"""Wrong declarations: every fault named at once, and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reactant_core.bundle.errors import BundleError
from reactant_export import TensorDecl, export_jax, from_jax
from reactant_export.samples import difference

Arrays = dict[str, jax.Array]

X = TensorDecl("x", "f32", "nk", {"k": 4})
Y = TensorDecl("y", "f32", "nk", {"k": 4})


def double(inputs: Arrays, weights: Arrays) -> Arrays:
    return {"y": inputs["x"] * 2}


def refusal(path: Path, **changes: Any) -> tuple[str, ...]:
    arguments: dict[str, Any] = {
        "fn": double,
        "weights": {},
        "inputs": [X],
        "outputs": [Y],
        "batch_sizes": [1, 2],
        "path": path,
        **changes,
    }
    with pytest.raises(BundleError) as caught:
        export_jax(**arguments)
    assert not path.exists()
    assert list(path.parent.glob(".staging*")) == []
    return caught.value.faults


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model"


def test_all_faults_of_the_declarations_at_once(path: Path) -> None:
    faults = refusal(
        path,
        inputs=[TensorDecl("x", "float", "nk", {"k": 4})],
        outputs=[TensorDecl("y", "f32", "nk", {})],
        weights={"w": np.array(["text"])},
        matmul_precision="exact",
        platforms=["gpu"],
        client_inputs=[TensorDecl("t", "bytes", "n")],
    )

    text = "\n".join(faults)
    for part in (
        "weight 'w': dtype <U4",
        "matmul_precision: 'exact'",
        "platforms: 'gpu' is none of cpu, cuda",
        "client_inputs and client_outputs are for bundles with hooks",
        "'float' is not a dtype",
        "no size for axis k",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"batch_sizes": None}, "needs batching.compiled_batch_sizes"),
        ({"batch_sizes": []}, "at least one size"),
        ({"batch_sizes": [1, 1]}, "listed twice"),
        ({"batch_sizes": [0]}, "0 is not a size"),
        ({"inputs": [X, X]}, "already the name"),
        ({"inputs": []}, "at least one tensor"),
        ({"inputs": [TensorDecl("x", "f32", "nk", {"k": -1})]}, "input_shapes lists no sizes"),
        ({"input_shapes": [{"h": 1}]}, "no executable input has a variable axis"),
        ({"inputs": [TensorDecl("x", "bytes", "n")]}, "bytes is for client_inputs"),
        ({"platforms": ["tpu"]}, "platforms: 'tpu' is none of cpu, cuda"),
        ({"platforms": []}, "platforms: needs at least one"),
        ({"hooks": Path("nowhere.py")}, "hooks: nowhere.py is no file"),
        ({"provenance": {"when": object()}}, "provenance: may hold"),
    ],
)
def test_each_wrong_declaration(path: Path, changes: dict[str, Any], part: str) -> None:
    # "an input with a batch axis needs" and "inputs with a batch axis need" both say it.
    text = "\n".join(refusal(path, **changes)).replace("need batching", "needs batching")

    assert part in text


def test_arguments_of_wrong_types_are_all_told(path: Path) -> None:
    arguments: dict[str, Any] = {
        "fn": {},
        "weights": [np.ones(1)],
        "inputs": X,
        "outputs": [("y", "f32")],
        "batch_sizes": 8,
        "platforms": "cpu",
        "assets": "words.txt",
        "hooks": 1,
        "path": None,
    }

    with pytest.raises(TypeError) as caught:
        export_jax(**arguments)

    assert str(caught.value).split("; ") == [
        "fn: must be a function of inputs and weights, not dict",
        "weights: must be a dict of name to array, not list",
        "inputs: must be a list of TensorDecl, not TensorDecl",
        "outputs: must be a list of TensorDecl, but item 0 is tuple",
        "batch_sizes: must be a list of whole numbers, not int",
        "platforms: must be a list of names, not str",
        "assets: must be a list of paths (str or Path), not str",
        "hooks: must be a path (str or Path), not int",
        "path: must be a path (str or Path), not NoneType",
    ]


def test_weights_that_are_no_arrays_are_named(path: Path) -> None:
    weights: dict[str, Any] = {"layer": {"w": np.ones(1)}, "ragged": [[1], [1, 2]]}

    with pytest.raises(TypeError, match=r"'layer': must be an array .*, not dict; .*'ragged' is no"):
        export_jax(double, weights, [X], [Y], batch_sizes=[1], path=path)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("", "client_inputs differ from executable_inputs and model.py has no preprocess"),
        (
            "def pre_process(inputs, request): ...",
            "client_inputs differ from executable_inputs and model.py has no preprocess; "
            "is pre_process meant to be it?",
        ),
        (
            "class C:\n    def preprocess(self): ...",
            "client_inputs differ from executable_inputs and model.py has no preprocess",
        ),
    ],
)
def test_hooks_that_do_not_make_the_programs_inputs(path: Path, source: str, fault: str) -> None:
    path.parent.joinpath("hooks.py").write_text(source)

    faults = refusal(
        path, client_inputs=[TensorDecl("t", "bytes", "n")], hooks=str(path.parent / "hooks.py"), verify=False
    )

    assert faults == (fault,)


def test_a_function_that_gives_something_else(path: Path) -> None:
    def fn(inputs: Arrays, weights: Arrays) -> Arrays:
        return {"z": inputs["x"], "y": inputs["x"][:, :3].astype(jnp.float64)}

    faults = refusal(path, fn=fn, outputs=[Y, TensorDecl("p", "f32", "n")])

    assert "fn gives no output 'p', which outputs declares" in faults
    assert "fn gives output 'z', which outputs does not declare" in faults
    assert any("'y' as float64; declared is f32" in fault for fault in faults)
    assert "fn gives output 'y' with shape [2, 3] at batch size 2, declared is [2, 4]" in faults


def test_a_function_that_gives_no_dict(path: Path) -> None:
    assert "must give a dict of outputs by name, not " in refusal(path, fn=lambda i, w: i["x"])[0]


def test_a_numpy_float64_scalar_is_told(path: Path) -> None:
    faults = refusal(path, fn=lambda i, w: {"y": i["x"] * np.sqrt(2.0)})

    assert faults[0].startswith("fn gives output 'y' as float64; declared is f32")


def test_faults_inside_the_function_are_its_own(path: Path) -> None:
    with pytest.raises(KeyError, match="missing"):
        export_jax(
            lambda i, w: {"y": i["missing"]},
            {},
            [X],
            [Y],
            batch_sizes=[1],
            path=path,
        )
    assert not path.exists()


def test_native_code_a_server_refuses(path: Path) -> None:
    def fn(inputs: Arrays, weights: Arrays) -> Arrays:
        shape = jax.ShapeDtypeStruct(inputs["x"].shape, np.float32)  # type: ignore[no-untyped-call]
        return {"y": jax.pure_callback(lambda x: x, shape, inputs["x"])}

    assert "cannot be lowered for cpu" in refusal(path, fn=fn)[0]


@pytest.mark.slow
def test_weights_baked_into_the_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_jax, "CONSTANTS_LIMIT_BYTES", 1 << 20)
    table = jnp.asarray(np.random.default_rng(0).standard_normal((1 << 17, 4)).astype(np.float32))

    (fault,) = refusal(path, fn=lambda i, w: {"y": i["x"] + table.sum(axis=0)})

    assert fault.startswith("model.b1.mlir: would have 2 MiB, most of it constants: pass large arrays")


def test_assets_that_cannot_be_copied(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for place in (tmp_path / "words.txt", tmp_path / "other" / "words.txt", tmp_path / "model.py"):
        place.write_text("")

    faults = refusal(
        path,
        assets=[
            tmp_path / "nowhere",
            tmp_path / "words.txt",
            tmp_path / "other" / "words.txt",
            tmp_path / "model.py",
        ],
    )

    assert [fault.partition(": ")[2] for fault in faults] == [
        "does not exist",
        "another asset has this name",
        "model.py is a name the bundle uses itself",
    ]


def test_targets_that_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("keep")
    for name, part in (
        ("file", "is no directory"),
        ("folder", "something other than a bundle"),
        (".x", "cannot be a"),
    ):
        with pytest.raises(BundleError, match=part):
            export_jax(double, {}, [X], [Y], batch_sizes=[1], path=tmp_path / name)
    assert (tmp_path / "file").read_text() == "keep"
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "keep"


def test_a_failed_export_keeps_the_bundle_that_was_there(tmp_path: Path) -> None:
    path = export_jax(double, {}, [X], [Y], batch_sizes=[1], path=tmp_path / "model", verify=False)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    with pytest.raises(BundleError, match="does not exist"):
        export_jax(
            double, {}, [X], [Y], batch_sizes=[2], path=path, assets=[tmp_path / "nowhere"], verify=False
        )

    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_an_answer_unlike_the_functions_is_found(path: Path) -> None:
    """The function changes after it was lowered, as one that reads a global may."""
    traced: list[bool] = []

    def fn(inputs: Arrays, weights: Arrays) -> Arrays:
        traced.append(True)
        # Traced for its shapes, then for the program, and last for the comparison.
        return {"y": inputs["x"] * (2.0 if len(traced) <= 2 else 2.1)}

    (fault,) = refusal(path, fn=fn, batch_sizes=[1])

    assert "model.b1.mlir: output 'y' of the written program differs by" in fault


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (("float32", [1, 2]), ("float32", [1, 2.0001]), True),
        (("float32", [1, 2]), ("float32", [1, 2.01]), False),
        (("float32", [1, np.nan]), ("float32", [1, np.nan]), True),
        (("float32", [1, np.nan]), ("float32", [np.nan, 1]), False),
        (("float32", [1, 2]), ("float32", [1, np.nan]), False),
        (("float32", [np.inf]), ("float32", [-np.inf]), False),
        (("float32", [0, 0]), ("float32", [0, 0]), True),
        (("float32", [0, 0]), ("float32", [0, 1e-3]), False),
        (("float64", [1]), ("float64", [1 + 1e-6]), False),
        (("float32", []), ("float32", []), True),
        (("int32", [1]), ("int32", [2]), False),
        (("int32", [1]), ("int64", [1]), False),
        (("int32", [1]), ("int32", [[1]]), False),
    ],
)
def test_difference(expected: tuple[str, Any], actual: tuple[str, Any], same: bool) -> None:
    one, other = (np.array(values, dtype) for dtype, values in (expected, actual))

    assert (difference(one, other) is None) == same
