"""`weights.safetensors`: one weight set for all programs of a bundle.

The format is https://github.com/huggingface/safetensors#format, read and written by this package
rather than by the library of that name: its numpy front end knows neither BF16 nor F8, it accepts
a key given twice, and it has no notion of the order in which programs take their weights.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, final

import numpy as np

from reactant_core.bundle.errors import BundleError, FaultList
from reactant_core.bundle.files import open_regular, read_exactly
from reactant_core.bundle.safetensors_header import parse_header
from reactant_core.bundle.weight_layout import WeightTensor, check_coverage, checked_order, placed
from reactant_core.bundle.weight_writer import write_weights

__all__ = ["WeightSet", "WeightTensor", "open_weights", "write_weights"]

MAX_HEADER_BYTES: Final = 16 << 20
"""The format allows 100 MB. At its most of 65,536 tensors this leaves 256 bytes for each."""

_LENGTH_BYTES: Final = 8


@final
@dataclass(frozen=True, slots=True)
class FileState:
    """Tells a file from one that has replaced it or has been written to since."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @staticmethod
    def of(file: BinaryIO) -> FileState:
        status = os.fstat(file.fileno())
        return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@final
class WeightSet:
    """A checked weight file. Holds no descriptor, and a memory map only while its views are in use.

    Attributes:
        path: the file.
        tensors: weights by name, in the file's order.
        argument_order: their names in the order programs take them, after the inputs.
        nbytes: bytes of all weights together.
        axes_reversed: weights are given with the axes of the file in reverse (`with_axes_reversed`).
    """

    __slots__ = ("_map", "_state", "argument_order", "axes_reversed", "nbytes", "path", "tensors")

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, WeightTensor],
        argument_order: tuple[str, ...],
        state: FileState,
        *,
        axes_reversed: bool = False,
    ) -> None:
        self.path = path
        self.axes_reversed = axes_reversed
        self.tensors: Mapping[str, WeightTensor] = MappingProxyType(dict(tensors))
        self.argument_order = argument_order
        self.nbytes = sum(tensor.nbytes for tensor in tensors.values())
        self._state = state
        self._map: weakref.ref[mmap.mmap] | None = None

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only view of a memory map of the file; it keeps the map alive.

        The file must not be truncated while a view is in use: the kernel would end the process
        (SIGBUS). Replacing it by a rename is harmless. `read_into` has no such condition.

        Raises:
            KeyError: when there is no weight of that name.
            BundleError: when the file is gone or has changed since it was checked.
        """
        tensor = self.tensors[name]
        return self._shaped(tensor, self._mapped(), tensor.offset)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """`array` of every weight, in argument order."""
        mapped = self._mapped()  # held here, so that all of them share it
        tensors = (self.tensors[name] for name in self.argument_order)
        return [self._shaped(tensor, mapped, tensor.offset) for tensor in tensors]

    def with_axes_reversed(self) -> WeightSet:
        """The same weights, each with its axes in reverse order: a matrix is transposed.

        The Julia server's writer stores a weight under Julia's sizes, while its program takes
        them reversed, as everything that crosses from Julia to XLA is.
        """
        tensors = {n: replace(t, shape=t.shape[::-1]) for n, t in self.tensors.items()}
        reverse = not self.axes_reversed
        return WeightSet(self.path, tensors, self.argument_order, self._state, axes_reversed=reverse)

    def moved(self, path: Path) -> WeightSet:
        """The same weights in the same file, which is now at `path`."""
        return WeightSet(
            path, self.tensors, self.argument_order, self._state, axes_reversed=self.axes_reversed
        )

    def read_into(self, destinations: Iterable[tuple[str, memoryview]]) -> None:
        """Copies weights into writable, contiguous buffers of exactly their size, by plain reads.

        What is written is row-major in the shape of `tensors`.

        Raises:
            KeyError: when there is no weight of that name.
            ValueError: when a buffer has another size than its weight.
            BundleError: when the file is gone, or has changed since it was checked.
        """
        with self._opened() as file:
            for name, destination in destinations:
                tensor = self.tensors[name]
                if destination.nbytes != tensor.nbytes:
                    raise ValueError(f"{name}: a buffer of {destination.nbytes} bytes for {tensor.nbytes}")
                file.seek(tensor.offset)
                if self.axes_reversed and len(tensor.shape) > 1:
                    stored = bytearray(tensor.nbytes)
                    self._fill(file, memoryview(stored))
                    ordered = np.ndarray(tensor.shape, tensor.dtype, buffer=destination)
                    ordered[...] = self._shaped(tensor, stored, 0)
                else:
                    self._fill(file, destination)
            if FileState.of(file) != self._state:
                raise self._changed()

    def _mapped(self) -> mmap.mmap:
        # Views alone keep a map, and with it a descriptor and a deleted file's space.
        mapped = None if self._map is None else self._map()
        if mapped is None:
            with self._opened() as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._map = weakref.ref(mapped)
        return mapped

    def _shaped(
        self, tensor: WeightTensor, buffer: mmap.mmap | bytearray, offset: int
    ) -> np.ndarray[Any, Any]:
        if self.axes_reversed:
            return np.ndarray(tensor.shape[::-1], tensor.dtype, buffer=buffer, offset=offset).transpose()
        return np.ndarray(tensor.shape, tensor.dtype, buffer=buffer, offset=offset)

    def _fill(self, file: BinaryIO, destination: memoryview) -> None:
        if destination.nbytes == 0:
            return
        rest = destination.cast("B")
        while rest.nbytes:
            count = file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise self._changed()
            rest = rest[count:]

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with open_regular(self.path) as file:
            if FileState.of(file) != self._state:
                raise self._changed()
            yield file

    def _changed(self) -> BundleError:
        return BundleError(f"{self.path.name}: has changed since it was checked; load the bundle again")


def open_weights(path: Path) -> WeightSet:
    """Checks a weight file without reading any weight.

    Raises:
        BundleError: with every fault found: a header out of bounds or not of the format, unknown
            dtypes, shapes that do not fit their bytes, overlaps, bytes that belong to no tensor, a
            file that is short or has more, an argument order that is no permutation of the names.
    """
    with open_regular(path) as file:
        state = FileState.of(file)
        data = _read_header(file, state.size, path.name)
    try:
        header = parse_header(data)
    except BundleError as error:
        raise BundleError(f"{path.name}: {error}") from error
    faults = FaultList()
    start = _LENGTH_BYTES + len(data)
    tensors = placed(faults, header.entries, start)
    check_coverage(faults, header.entries, state.size - start)
    order = checked_order(faults, header)
    if faults:
        raise BundleError(f"{path.name}: {fault}" for fault in faults.sentences())
    return WeightSet(path, tensors, order, state)


def _read_header(file: BinaryIO, size: int, what: str) -> bytes:
    length = int.from_bytes(read_exactly(file, _LENGTH_BYTES, what), "little")
    if length > size - _LENGTH_BYTES:
        raise BundleError(f"{what}: declares a header of {length} bytes but has {size} in all; cut short?")
    if length > MAX_HEADER_BYTES:
        raise BundleError(f"{what}: declares a header of {length} bytes; at most {MAX_HEADER_BYTES} are read")
    return read_exactly(file, length, what)
