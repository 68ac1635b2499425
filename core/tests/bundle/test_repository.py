from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import (
    ProgramKey,
    read_bundle,
    scan_repository,
    valid_model_name,
)

MakeBundle = Callable[..., Path]


def faults_of(path: Path) -> tuple[str, ...]:
    with pytest.raises(BundleError) as caught:
        read_bundle(path)
    return caught.value.faults


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a.b-1", True),
        ("модель", True),
        ("a b", True),
        ("%2e%2e", True),
        ("a..b", True),
        ("-x", True),
        ("x" * 255, True),
        ("é" * 127, True),
        ("", False),
        (".", False),
        ("..", False),
        (".staging", False),
        ("../x", False),
        ("a/../b", False),
        ("/etc", False),
        ("a/b", False),
        ("a\0b", False),
        ("x" * 256, False),
        ("é" * 128, False),
        ("\udcff", False),
    ],
)
def test_l4_model_names(name: str, valid: bool) -> None:
    assert valid_model_name(name) is valid


@pytest.mark.parametrize("name", ["a.b-1", "модель", "a b"])
def test_l4_any_valid_name_is_found_and_read(make_bundle: MakeBundle, name: str) -> None:
    path = make_bundle(name=name)
    assert scan_repository([path.parent]).bundles == {name: path}
    assert read_bundle(path).name == name


def test_a_sound_bundle(make_bundle: MakeBundle) -> None:
    path = make_bundle({"vocab.txt": "a"})
    bundle = read_bundle(path)
    assert (bundle.name, bundle.path, bundle.hooks) == ("model-a", path, None)
    assert bundle.manifest.compiled_batch_sizes == (1, 8)
    assert bundle.programs == {
        ProgramKey(1, None): path / "model.b1.mlir",
        ProgramKey(8, None): path / "model.b8.mlir",
    }
    assert bundle.weights is not None
    assert bundle.weights.argument_order == ("w", "b")


def test_a_bundle_that_was_moved_is_read_where_it_is_now(make_bundle: MakeBundle) -> None:
    path = make_bundle({"model.py": "def postprocess(outputs, request):\n    return outputs\n"})
    bundle = read_bundle(path)
    there = path.rename(path.with_name("elsewhere"))

    moved, fresh = bundle.moved(there), read_bundle(there)

    assert (moved.name, moved.path, moved.hooks) == ("elsewhere", there, fresh.hooks)
    assert moved.programs == fresh.programs
    assert moved.weights is not None
    assert [array.tolist() for array in moved.weights.arrays()] == [
        array.tolist() for array in (fresh.weights.arrays() if fresh.weights is not None else [])
    ]


def test_weights_are_optional(make_bundle: MakeBundle) -> None:
    assert read_bundle(make_bundle({"weights.safetensors": None})).weights is None


@pytest.mark.parametrize(
    ("declared", "hooks", "idempotent"),
    [
        ("", False, True),
        ("", True, False),
        ("idempotent: false\n", False, False),
        ("idempotent: true\n", True, True),
    ],
)
def test_idempotent_unless_hooks_or_manifest_say_otherwise(
    make_bundle: MakeBundle, declared: str, hooks: bool, idempotent: bool
) -> None:
    path = make_bundle({"model.py": ""} if hooks else {})
    with (path / "manifest.yaml").open("a") as manifest:
        manifest.write(declared)
    assert read_bundle(path).idempotent is idempotent


META = """\
format_version: "3"
kind: meta
meta: {calls: [a]}
client_inputs: [{name: t, dtype: bytes, shape: k, dims: {k: -1}}]
client_outputs: [{name: t, dtype: bytes, shape: k, dims: {k: -1}}]
"""
_NO_PROGRAMS: dict[str, str | None] = dict.fromkeys(
    ("model.b1.mlir", "model.b8.mlir", "weights.safetensors"), None
)


def test_a_meta_is_its_manifest_and_hooks(make_bundle: MakeBundle) -> None:
    bundle = read_bundle(make_bundle({**_NO_PROGRAMS, "model.py": "", "notes.txt": ""}, manifest=META))
    assert (dict(bundle.programs), bundle.weights, bundle.idempotent) == ({}, None, False)
    assert bundle.hooks == bundle.path / "model.py"


def test_what_a_meta_must_and_must_not_have(make_bundle: MakeBundle) -> None:
    path = make_bundle({"model.mlir": ""}, manifest=META, name="a")
    assert faults_of(path) == (
        "model.b1.mlir: a meta has no programs",
        "model.b8.mlir: a meta has no programs",
        "model.mlir: a meta has no programs",
        "model.py: missing; a meta is its function run(inputs, call, request)",
        "weights.safetensors: a meta has no weights; give the file another name if its hooks read it",
        "manifest.yaml: meta.calls: a meta cannot call itself",
    )


def test_client_lists_need_hooks(make_bundle: MakeBundle) -> None:
    path = make_bundle()
    with (path / "manifest.yaml").open("a") as manifest:
        manifest.write("client_inputs: [{name: t, dtype: bytes, shape: n}]\n")
    (fault,) = faults_of(path)
    assert fault.startswith(
        "manifest.yaml: client_inputs: is only for bundles whose model.py changes the I/O"
    )
    (path / "model.py").touch()
    assert read_bundle(path).hooks == path / "model.py"


@pytest.mark.parametrize("version", ["2.0", "3"])
def test_julia_hooks_are_refused_with_how_to_port_them(make_bundle: MakeBundle, version: str) -> None:
    path = make_bundle({"model.jl": "using X"})
    manifest = path / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace('"3"', f'"{version}"'))
    with manifest.open("a") as file:
        file.write("client_inputs: [{name: t, dtype: bytes, shape: n}]\n")
    (fault,) = faults_of(path)
    assert fault.startswith("model.jl: hooks in Julia cannot run here; port them: write model.py beside it")
    assert "preprocess(inputs, request)" in fault
    (path / "model.py").touch()
    assert read_bundle(path).hooks == path / "model.py"


def test_faults_of_all_files_come_at_once(make_bundle: MakeBundle) -> None:
    path = make_bundle(
        {
            "manifest.yaml": 'format_version: "9"\nkind: modell\n',
            "weights.safetensors": struct.pack("<Q", 2) + b"{}x",
            "model.jl": "",
        }
    )
    faults = faults_of(path)
    assert [fault.partition(":")[0] for fault in faults] == [
        "model.jl",
        "weights.safetensors",
        *["manifest.yaml"] * 4,
    ]


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"manifest.yaml": None}, "manifest.yaml: missing"),
        ({"manifest.yaml": None, "manifest.yml": ""}, "manifest.yaml: missing; manifest.yml is not read"),
        ({"manifest.yaml": ""}, "manifest.yaml: must be a mapping that begins with format_version, not null"),
        ({"model.b8.mlir": None}, "model.b8.mlir: missing; it is the program for batch size 8"),
        ({"model.b4.mlir": ""}, "model.b4.mlir: the manifest asks for no such program"),
        ({"model.mlir": ""}, "model.mlir: the manifest asks for no such program"),
        ({"model.old.mlir": ""}, "model.old.mlir: the manifest asks for no such program"),
    ],
)
def test_one_faulty_file(make_bundle: MakeBundle, files: dict[str, str | None], fault: str) -> None:
    assert faults_of(make_bundle(files)) == (fault,)


@pytest.mark.parametrize("file", ["manifest.yaml", "weights.safetensors"])
def test_what_is_no_regular_file_is_not_waited_for(make_bundle: MakeBundle, file: str) -> None:
    path = make_bundle({file: None})
    os.mkfifo(path / file)
    assert faults_of(path) == (f"{file}: is not a regular file",)
    (path / file).unlink()
    (path / file).symlink_to("nowhere")
    assert faults_of(path) == (f"{file}: cannot be opened: No such file or directory",)


def test_l2_a_half_copied_bundle_says_so(make_bundle: MakeBundle) -> None:
    path = make_bundle()
    weights = path / "weights.safetensors"
    whole = weights.read_bytes()
    for part in (whole[: len(whole) - 20], whole[:100], b""):
        weights.write_bytes(part)
        (fault,) = faults_of(path)
        assert fault.startswith("weights.safetensors: ")
    weights.write_bytes(whole)
    assert read_bundle(path).weights is not None


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "gone") == ("gone: cannot be listed: No such file or directory",)


def test_what_counts_as_a_bundle(make_bundle: MakeBundle, tmp_path: Path) -> None:
    models = make_bundle().parent
    for name, file in [
        ("only-program", "model.b3.mlir"),
        ("only-weights", "weights.safetensors"),
        ("only-hooks", "model.py"),
        ("only-julia", "model.jl"),
        ("docs", "README.md"),
        (".staging", "manifest.yaml"),
    ]:
        (models / name).mkdir()
        (models / name / file).touch()
    (models / "empty").mkdir()
    (models / "manifest.yaml").touch()
    elsewhere = tmp_path / "v7"
    elsewhere.mkdir()
    (elsewhere / "manifest.yaml").touch()
    (models / "current").symlink_to(elsewhere)
    (models / "dangling").symlink_to(tmp_path / "gone")
    (models / "loop").symlink_to("loop")
    (models / os.fsdecode(b"\xff")).mkdir()
    (models / os.fsdecode(b"\xff") / "manifest.yaml").touch()
    names = ["current", "model-a", "only-hooks", "only-julia", "only-program", "only-weights"]
    assert list(scan_repository([models]).bundles.items()) == [(name, models / name) for name in names]
    assert faults_of(models / "only-hooks") == ("manifest.yaml: missing",)
    assert read_bundle(models / "model-a").name == "model-a"


def test_the_first_directory_wins_and_the_others_are_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for directory, name in [(first, "b"), (second, "b"), (second, "a")]:
        (directory / name).mkdir(parents=True)
        (directory / name / "manifest.yaml").touch()
    scan = scan_repository([first, second])
    assert list(scan.bundles.items()) == [("a", second / "a"), ("b", first / "b")]
    assert scan.shadowed == (("b", second / "b"),)
    assert scan.unreadable == ()


def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    path = make_bundle()
    gone = tmp_path / "gone"
    scan = scan_repository([gone, path.parent])
    assert scan.bundles == {"model-a": path}
    assert scan.unreadable == ((gone, "No such file or directory"),)


@pytest.mark.slow
def test_l11_l12_hostile_files_cost_little_memory(
    make_bundle: MakeBundle, peak_growth_mib: Callable[[Path, list[Path]], float]
) -> None:
    def raw(header: bytes) -> bytes:
        return struct.pack("<Q", len(header)) + header

    mib = 1 << 20
    weights = {
        "nested": raw(b'{"a":' + b"[" * 15 * mib),
        "lists": raw(b'{"a":[' + b"[]," * 5 * mib),
        "name": raw(b'{"' + b"a" * 15 * mib + b'":1}'),
        "order": raw(b'{"__metadata__":{"argument_order":"[' + b'\\"\\",' * 3 * mib + b'"}}'),
        "astral": raw(
            b'{"__metadata__":{"argument_order":"\xf0\x9f\x98\x80\\n'
            + b"a" * (4 * mib - 99)
            + b'"}}'
            + b" " * 11 * mib
        ),
        "tensors": raw(
            b"{%s}"
            % b",".join(b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(200_000))
        ),
    }
    hostile = [
        make_bundle({"weights.safetensors": content}, name=f"weights-{name}")
        for name, content in weights.items()
    ]
    sizes = {"header-200mb": (200 * mib, 201 * mib), "header-2^63": (1 << 63, 201 * mib)}
    for name, (declared, size) in sizes.items():
        path = make_bundle(name=name)
        with (path / "weights.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", declared))
            file.truncate(size)
        hostile.append(path)
    large = make_bundle(name="manifest-50mb")
    with (large / "manifest.yaml").open("ab") as file:
        file.truncate(50 * mib)
    rows = "\n".join(
        ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
        + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    )
    hostile += [
        large,
        make_bundle({"manifest.yaml": rows}, name="manifest-aliases"),
        make_bundle({"manifest.yaml": "a: " + "[" * 5000 + "]" * 5000}, name="manifest-brackets"),
        make_bundle({"manifest.yaml": "x: [" + "[]," * (mib // 3 - 9) + "]"}, name="manifest-lists"),
    ]
    assert peak_growth_mib(make_bundle(name="sound"), hostile) < 100
