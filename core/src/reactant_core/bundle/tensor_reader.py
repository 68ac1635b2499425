"""Reading the tensor lists of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reactant_core.bundle.dtypes import BY_KSERVE, BY_TOKEN, DType, by_numpy
from reactant_core.bundle.errors import FaultList, instead, shown, suggestion
from reactant_core.bundle.tensors import TensorSpec

BATCH_LETTERS: Final = frozenset("nb")
MAX_SIZE: Final = (1 << 63) - 1
MAX_RANK: Final = 32
"""numpy's limit is 64; no exporter writes half of that, and an error text can still show the shape."""

_KEYS: Final = ("name", "dtype", "shape", "dims")


def is_size(value: object) -> bool:
    """Whether `value` is an integer a tensor's axis can have as its size."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIZE


def read_tensors(
    faults: FaultList, value: object, section: str, *, client: bool, column_major: bool
) -> tuple[TensorSpec, ...] | None:
    """Reads a list of tensors and adds what is wrong with it to `faults`; then returns None.

    Args:
        faults: where faults go.
        value: what the manifest holds under `section`.
        section: the manifest's key, for messages.
        client: whether clients see these tensors, so that `bytes` may occur.
        column_major: letters are written in Julia's order and are reversed.
    """
    if not isinstance(value, list) or not value:
        faults.add(f"{section}: must be a list of at least one tensor{instead(value)}")
        return None
    specs: list[TensorSpec] = []
    names: set[str] = set()
    sound = True
    for index, entry in enumerate(value):
        where = f"{section}[{index}]"
        spec = _read_tensor(faults, entry, where, client=client, column_major=column_major)
        if spec is None:
            sound = False
            continue
        if spec.name in names:
            faults.add(f"{where}.name: {shown(spec.name)} is already the name of another tensor of {section}")
            sound = False
        names.add(spec.name)
        specs.append(spec)
    return tuple(specs) if sound else None


def _read_tensor(
    faults: FaultList, entry: object, where: str, *, client: bool, column_major: bool
) -> TensorSpec | None:
    if not isinstance(entry, dict):
        faults.add(f"{where}: must be a mapping with the keys {', '.join(_KEYS)}{instead(entry)}")
        return None
    unknown_keys(faults, entry, _KEYS, where)
    name = _read_name(faults, entry.get("name"), where)
    if name is not None:
        where = f"{where} ({shown(name)})"
    dtype = _read_dtype(faults, entry.get("dtype"), where, client=client)
    axes = _read_axes(faults, entry.get("shape"), where)
    sizes = _read_dims(faults, entry.get("dims"), axes, where)
    if name is None or dtype is None or axes is None or sizes is None:
        return None
    if column_major:
        axes = axes[::-1]
    dims = tuple(-1 if letter in BATCH_LETTERS else sizes[letter] for letter in axes)
    batch_axis = next((i for i, letter in enumerate(axes) if letter in BATCH_LETTERS), None)
    return TensorSpec(name, dtype, axes, dims, batch_axis)


def unknown_keys(
    faults: FaultList, mapping: Mapping[str, object], accepted: tuple[str, ...], where: str
) -> None:
    """Adds a fault per key of `mapping` that is not among `accepted`."""
    for key in mapping:
        if key not in accepted:
            place = f"{where}: " if where else ""
            hint = "" if faults.full else suggestion(key, accepted)
            faults.add(f"{place}unknown key {shown(key)}{hint}; accepted: {', '.join(accepted)}")


def _read_name(faults: FaultList, value: object, where: str) -> str | None:
    if isinstance(value, str) and value:
        return value
    hint = "" if value is None or isinstance(value, (str, list, dict)) else "; put it in quotes"
    faults.add(f"{where}.name: must be text that is not empty{instead(value)}{hint}")
    return None


def _read_dtype(faults: FaultList, value: object, where: str, *, client: bool) -> DType | None:
    dtype = BY_TOKEN.get(value) if isinstance(value, str) else None
    if dtype is None:
        accepted = ", ".join(t for t in BY_TOKEN if client or t != "bytes")
        faults.add(f"{where}.dtype: {shown(value)} is not a dtype{_meant(value)}; accepted: {accepted}")
    elif not dtype.itemsize and not client:
        faults.add(f"{where}.dtype: bytes is for client_inputs and client_outputs; XLA has no strings")
        return None
    return dtype


def _meant(value: object) -> str:
    """A hint for those who write numpy's, PyTorch's or KServe's name of a type."""
    if not isinstance(value, str) or len(value) > 16:
        return ""
    word = value.removeprefix("torch.")
    known = BY_KSERVE.get(word.upper())
    if known is None:
        known = next(
            (d for d in BY_TOKEN.values() if d.numpy.name == word.lower() and by_numpy(d.numpy)), None
        )
    return f" (did you mean {known.token!r}?)" if known is not None else suggestion(word, tuple(BY_TOKEN))


def _read_axes(faults: FaultList, value: object, where: str) -> str | None:
    if not isinstance(value, str):
        faults.add(f"{where}.shape: must be text with one letter per axis, such as nchw{instead(value)}")
        return None
    if len(value) > MAX_RANK:
        faults.add(f"{where}.shape: has {len(value)} axes; at most {MAX_RANK} are accepted")
        return None
    if not all(letter.isascii() and letter.isalpha() for letter in value):
        faults.add(f"{where}.shape: {shown(value)} must consist of ASCII letters, one per axis")
        return None
    if len(set(value)) != len(value):
        faults.add(f"{where}.shape: {shown(value)} uses a letter twice")
        return None
    if len(BATCH_LETTERS.intersection(value)) > 1:
        faults.add(f"{where}.shape: {shown(value)} has two batch axes: n and b both mark one")
        return None
    return value


def _read_dims(faults: FaultList, value: object, axes: str | None, where: str) -> dict[str, int] | None:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        faults.add(f"{where}.dims: must be a mapping of axis letters to sizes{instead(value)}")
        return None
    if axes is None:
        return None
    wanted = [letter for letter in axes if letter not in BATCH_LETTERS]
    sound = True
    for letter, size in value.items():
        if letter in BATCH_LETTERS:
            faults.add(
                f"{where}.dims: {letter} marks the batch axis; its sizes are batching.compiled_batch_sizes"
            )
        elif letter not in wanted:
            faults.add(f"{where}.dims: {shown(letter)} is no axis of shape {shown(axes)}")
        elif not is_size(size) and not (isinstance(size, int) and size == -1):
            faults.add(f"{where}.dims.{letter}: must be at least 1, or -1 for a variable axis{instead(size)}")
        else:
            continue
        sound = False
    missing = [letter for letter in wanted if letter not in value]
    if missing:
        faults.add(f"{where}.dims: has no size for axis {', '.join(missing)}")
        sound = False
    return value if sound else None
