"""Writes the fixture bundles: `python -m tests.support.build FOLDER`.

A process of its own, so that the tests' process never starts a JAX backend. Start it with
JAX_PLATFORMS=cpu, so that it does not claim a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from tests.support.settings import ODD_NAMES, VIA

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_export import TensorDecl, export_jax, export_meta

HOOKS = Path(__file__).with_name("hooks")
LARGEST = 4
"""Largest compiled batch size of most fixtures."""

Tensors = dict[str, Any]
Program = Callable[[Tensors, Tensors], Tensors]


@final
@dataclass(frozen=True, slots=True)
class Fixture:
    """What `export_jax` needs to write one bundle."""

    program: Program
    inputs: Sequence[TensorDecl]
    outputs: Sequence[TensorDecl]
    batch_sizes: Sequence[int] | None = (1, LARGEST)
    client_inputs: Sequence[TensorDecl] | None = None
    client_outputs: Sequence[TensorDecl] | None = None
    hooks: str | None = None
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None
    input_shapes: Sequence[Mapping[str, int]] = ()
    idempotent: bool | None = None
    internal: bool = False

    def write(self, path: Path) -> None:
        """Writes the bundle `path`, which must not exist."""
        export_jax(
            self.program,
            self.weights or {},
            self.inputs,
            self.outputs,
            batch_sizes=self.batch_sizes,
            path=path,
            client_inputs=self.client_inputs,
            client_outputs=self.client_outputs,
            hooks=None if self.hooks is None else HOOKS / self.hooks,
            verify=False,
            input_shapes=self.input_shapes,
            idempotent=self.idempotent,
            internal=self.internal,
        )


@final
@dataclass(frozen=True, slots=True)
class Meta:
    """What `export_meta` needs to write one bundle."""

    hooks: str
    inputs: Sequence[TensorDecl]
    outputs: Sequence[TensorDecl]
    calls: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """Writes the bundle `path`, which must not exist."""
        export_meta(HOOKS / self.hooks, self.inputs, self.outputs, calls=self.calls, path=path)


def _decl(name: str, dtype: str, shape: str = "nk", **dims: int) -> TensorDecl:
    return TensorDecl(name, dtype, shape, dims)


def _echo(dtype: str, width: int, *, hooks: str | None = None, idempotent: bool | None = None) -> Fixture:
    return Fixture(
        lambda x, w: {"Y": x["X"]},
        [_decl("X", dtype, k=width)],
        [_decl("Y", dtype, k=width)],
        hooks=hooks,
        idempotent=idempotent,
    )


def _slow(x: Tensors, w: Tensors) -> Tensors:
    """Y = X, after as many dependent steps as the largest of `steps` says."""
    start = x["X"] * 0
    last = lax.fori_loop(0, jnp.max(x["steps"]), lambda _, v: jnp.sin(v + 1), start)
    # A sine is never above 2, which the compiler does not know.
    return {"Y": jnp.where(last > 2, last, x["X"])}


def _sorts(x: Tensors, w: Tensors) -> Tensors:
    """Sorting networks are what XLA takes longest to compile on a CPU, measured against anything handy."""
    total = x["X"]
    for index in range(16):
        total = jnp.sort(total * (1.0 + index) + index, axis=1, stable=True)[:, ::-1]
        total = jnp.cumsum(jnp.tanh(total), axis=1)
    return {"Y": total}


_TYPES = {name: dtype.token for name, dtype in BY_KSERVE.items() if dtype.itemsize}
_TYPED = {name: token for name, token in _TYPES.items() if token not in ("f16", "bf16")}


def _each(types: Mapping[str, str]) -> Fixture:
    """Every datatype in and out."""
    return Fixture(
        lambda x, w: {f"{name}_out": x[name] for name in types},
        [_decl(name, token, k=2) for name, token in types.items()],
        [_decl(f"{name}_out", token, k=2) for name, token in types.items()],
    )


_FLOATS = [_decl("X", "f32", k=4)], [_decl("Y", "f32", k=4)]
_BYTES = [_decl("text", "bytes", "n")], [_decl("echo", "bytes", "n")]
_PACKED = [_decl("data", "u8", "nl", l=64), _decl("length", "i32", "n")]
_PACKED_OUT = [_decl("data_out", "u8", "nl", l=64), _decl("length_out", "i32", "n")]


def _hooked(hooks: str) -> Fixture:
    return _echo("f32", 4, hooks=hooks)


def _version(number: int) -> Fixture:
    """A bundle each of whose parts says which version it is of; see tests/support/versions.py."""
    ones = [_decl(name, "f32", k=1) for name in ("weights", "program")]
    return Fixture(
        lambda x, w: {"weights": x["X"] * 0 + w["number"], "program": x["X"] * 0 + float(number)},
        [_decl("X", "f32", k=1)],
        ones,
        client_outputs=[*ones, _decl("hooks", "f32", k=1), _decl("asset", "f32", k=1)],
        hooks="version.py",
        weights={"number": np.array([number], np.float32)},
    )


_MODELS: Mapping[str, Fixture] = {
    "version_1": _version(1),
    "version_2": _version(2),
    "echo": _echo("f32", 4),
    "echo_f16": _echo("f16", 2),
    "echo_bf16": _echo("bf16", 2),
    "echo_i64": _echo("i64", 2),
    "add2": Fixture(
        lambda x, w: {"SUM": x["A"] + x["B"], "DIFF": x["A"] - x["B"]},
        [_decl("A", "f32", k=4), _decl("B", "f32", k=4)],
        [_decl("SUM", "f32", k=4), _decl("DIFF", "f32", k=4)],
    ),
    "all_types": _each(_TYPES),
    "typed_types": _each(_TYPED),
    "unbatched": Fixture(
        lambda x, w: {"Y": x["X"] * 2}, [_decl("X", "f32", "k", k=3)], [_decl("Y", "f32", "k", k=3)], None
    ),
    "columns": Fixture(  # the batch axis is the last one
        lambda x, w: {"Y": x["X"] + w["shift"][:, None]},
        [_decl("X", "f32", "kn", k=3)],
        [_decl("Y", "f32", "kn", k=3)],
        weights={"shift": np.array([1.0, 2.0, 3.0], np.float32)},
    ),
    "variants": Fixture(
        lambda x, w: {"total": jnp.sum(x["image"], axis=(1, 2))},
        [_decl("image", "f32", "nhw", h=-1, w=-1)],
        [_decl("total", "f32", "n")],
        (1, 2),
        input_shapes=[{"h": 2, "w": 3}, {"h": 4, "w": 4}],
    ),
    "weights_bf16": Fixture(
        lambda x, w: {"Y": x["X"] + w["shift"].astype(jnp.float32)},
        *_FLOATS,
        weights={"shift": np.array([1, 2, 3, 4], ml_dtypes.bfloat16)},
    ),
    "weights_f8": Fixture(
        lambda x, w: {"Y": x["X"] + w["shift"].astype(jnp.float32)},
        *_FLOATS,
        weights={"shift": np.array([1, 2, 3, 4], ml_dtypes.float8_e4m3fn)},
    ),
    "echo_bytes": Fixture(
        lambda x, w: {"data_out": x["data"], "length_out": x["length"]},
        _PACKED,
        _PACKED_OUT,
        client_inputs=_BYTES[0],
        client_outputs=_BYTES[1],
        hooks="echo_bytes.py",
    ),
    "blob": Fixture(
        lambda x, w: {"kept": x["facts"]},
        [_decl("facts", "i64", "nf", f=3)],
        [_decl("kept", "i64", "nf", f=3)],
        (1,),
        client_inputs=[_decl("blob", "bytes", "n"), _decl("reply_size", "i64", "n")],
        client_outputs=[
            _decl("received", "i64", "n"),
            _decl("crc", "i64", "n"),
            _decl("reply", "bytes", "n"),
        ],
        hooks="blob.py",
    ),
    "params": Fixture(
        lambda x, w: {"Y": x["X"]},
        *_FLOATS,
        client_outputs=[_decl("Y", "f32", k=4), _decl("told", "bytes", "n")],
        hooks="params.py",
    ),
    "slow": Fixture(
        _slow,
        [_decl("X", "f32", k=4), _decl("steps", "i32", "ns", s=1)],
        [_decl("Y", "f32", k=4)],
        (1,),
        hooks="slow.py",
    ),
    "slow_hook": _hooked("slow_hook.py"),
    "repeatable": _echo("f32", 4, hooks="slow_hook.py", idempotent=True),  # as slow_hook, which is not
    "hook_faults": _hooked("hook_faults.py"),
    "bf16_hook": _echo("bf16", 2, hooks="slow_hook.py"),
    "imports_triton": _hooked("imports_triton.py"),
    "imports_kserve": _hooked("imports_kserve.py"),
    "gate": _hooked("gate.py"),
    "sorts": Fixture(_sorts, [_decl("X", "f32", k=512)], [_decl("Y", "f32", k=512)], (1, 2, 3, 4)),
    "hidden": Fixture(
        lambda x, w: {"Y": x["X"] + w["shift"]},
        *_FLOATS,
        weights={"shift": np.array([1.0, 2.0, 3.0, 4.0], np.float32)},
        internal=True,
    ),
    "sequences": Fixture(  # two inputs of one variable length, and an output of it
        lambda x, w: {"doubled": x["ids"] * 2, "sum": jnp.sum(x["ids"] * x["mask"], axis=1, dtype=jnp.int32)},
        [_decl("ids", "i32", "ns", s=-1), _decl("mask", "i32", "ns", s=-1)],
        [_decl("doubled", "i32", "ns", s=-1), _decl("sum", "i32", "n")],
        (1, 2),
        input_shapes=[{"s": 3}, {"s": 5}],
    ),
    "unbatched_variants": Fixture(
        lambda x, w: {"last": x["X"][-1:]},
        [_decl("X", "f32", "s", s=-1)],
        [_decl("last", "f32", "k", k=1)],
        None,
        input_shapes=[{"s": 2}, {"s": 7}],
    ),
    "padded": Fixture(  # a hook makes one of the compiled lengths of whatever comes
        lambda x, w: {"total": jnp.sum(x["X"], axis=1)},
        [_decl("X", "f32", "ns", s=-1)],
        [_decl("total", "f32", "n")],
        (1, 4),
        client_inputs=[_decl("X", "f32", "nw", w=-1)],
        client_outputs=[_decl("total", "f32", "n")],
        hooks="padded.py",
        input_shapes=[{"s": 4}, {"s": 8}],
    ),
}


def _of_a_meta(tensors: Sequence[TensorDecl]) -> list[TensorDecl]:
    """The same tensors where the number of rows is an axis as any other."""
    return [
        TensorDecl(t.name, t.dtype_token, t.shape.replace("n", "z"), {**t.dims, "z": -1})
        if "n" in t.shape
        else t
        for t in tensors
    ]


def _via(name: str) -> Meta:
    model = _MODELS[name]
    return Meta(
        "via.py",
        _of_a_meta(model.client_inputs or model.inputs),
        _of_a_meta(model.client_outputs or model.outputs),
        [name],
    )


_X, _Y = _of_a_meta(_FLOATS[0]), _of_a_meta(_FLOATS[1])

FIXTURES: Mapping[str, Fixture | Meta] = {
    **_MODELS,
    **{f"via_{name}": _via(name) for name in VIA},
    "via_hidden": Meta("via.py", _X, _Y, ["hidden"]),
    "via_odd": Meta("via_named.py", _X, _Y, ODD_NAMES),
    "via_via": Meta("via.py", _X, _Y, ["via_echo"]),
    "alone": Meta("alone.py", _of_a_meta(_BYTES[0]), _of_a_meta(_BYTES[1])),
    "staged": Meta("staged.py", [*_X, TensorDecl("steps", "i32", "s", {"s": -1})], _Y, ["slow"]),
    "meta_faults": Meta("meta_faults.py", _X, _Y, ["echo", "echo_bytes", "variants"]),
}


def main() -> None:
    """Writes every fixture below the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, fixture in FIXTURES.items():
        fixture.write(folder / name)


if __name__ == "__main__":
    main()
