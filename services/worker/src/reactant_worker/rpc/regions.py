"""Registered shared-memory regions: where request tensors may lie and response tensors may go.

Read and written by system calls, never mapped: a client that truncates its object then gets an error,
where touching a mapping would end the worker (SIGBUS).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from reactant_core.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from reactant_core.kserve.shm import SHM, open_shared
from reactant_core.kserve.surface import unknown_region
from reactant_proto import inference_pb2 as pb

REGION: Final = "shared_memory_region"
BYTE_SIZE: Final = "shared_memory_byte_size"
OFFSET: Final = "shared_memory_offset"
MAX_REGIONS: Final = 4096
"""Each holds a file descriptor."""
_OWN_PREFIX: Final = "reactant-"
_INTEGERS: Final = ("int64_param", "uint64_param")


@final
class Region:
    """`size` bytes at `offset` of an open object; the descriptor is closed with the last reference.

    An object that is unlinked and made anew under the same key stays the old one here.
    """

    def __init__(self, name: str, key: str, offset: int, size: int, fd: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.size = size
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the region; raises InvalidArgument outside of it, or when the object has shrunk."""
        self._check(offset, size)
        data = os.pread(self._fd, size, self.offset + offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), self.offset + offset + len(data))
            if not more:
                raise InvalidArgument(
                    f"shared-memory region '{self.name}' is shorter than when it was registered"
                )
            data += more
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Writes into the region; raises InvalidArgument outside of it, or when the object has shrunk."""
        self._check(offset, len(data))
        if os.fstat(self._fd).st_size < self.offset + offset + len(data):
            raise InvalidArgument(
                f"shared-memory region '{self.name}' is shorter than when it was registered"
            )
        view = memoryview(data)
        position = self.offset + offset
        while view:
            written = os.pwrite(self._fd, view, position)
            view, position = view[written:], position + written

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidArgument(
                f"{size} bytes at offset {offset} lie outside shared-memory region '{self.name}' "
                f"of {self.size} bytes"
            )


@final
@dataclass(frozen=True, slots=True)
class Window:
    """The part of a region that one tensor's parameters name."""

    region: Region
    offset: int
    size: int

    def read(self) -> bytes:
        """All of it."""
        return self.region.read(self.offset, self.size)

    def write(self, data: bytes) -> None:
        """`data` at its beginning; raises InvalidArgument when it does not fit."""
        if len(data) > self.size:
            raise InvalidArgument(
                f"takes {len(data)} bytes, {BYTE_SIZE} for region '{self.region.name}' is {self.size}"
            )
        self.region.write(self.offset, data)


@final
class Regions:
    """Regions by name. Used on the event loop only."""

    def __init__(self, root: Path = SHM) -> None:
        self._root = root
        self._regions: dict[str, Region] = {}

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions.values())

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Makes a region known.

        Raises AlreadyExists for a name that is taken, InvalidArgument for an empty name, a key that is
        no object of its own, or a range that is empty or outside the object.
        """
        if not name:
            raise InvalidArgument("a shared-memory region needs a name")
        if name in self._regions:
            raise AlreadyExists(f"shared-memory region '{name}' is already registered")
        if len(self._regions) >= MAX_REGIONS:
            raise ResourceExhausted(f"{MAX_REGIONS} shared-memory regions are registered, no more are taken")
        if key.removeprefix("/").startswith(_OWN_PREFIX):
            raise InvalidArgument(
                f"shared-memory region '{name}': keys '{_OWN_PREFIX}*' are the server's own"
            )
        try:
            fd = open_shared(key, os.O_RDWR, self._root)
        except (OSError, ValueError):
            # One text for all: it must not tell what exists.
            raise InvalidArgument(
                f"shared-memory region '{name}': key '{key}' is not the name of a POSIX shared-memory object "
                "this server can open"
            ) from None
        region = Region(name, key, offset, size, fd)
        if size <= 0 or offset + size > os.fstat(fd).st_size:
            raise InvalidArgument(
                f"shared-memory region '{name}': {size} bytes at offset {offset} must lie inside the object "
                "and be at least 1"
            )
        self._regions[name] = region

    def unregister(self, name: str) -> None:
        """Forgets a region, every region for an empty name; an unknown one is no error.

        A request that uses it keeps it open until it ends; the name is free at once.
        """
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def get(self, name: str, what: str = "") -> Region:
        """A region by name; ModelNotFound with a trailer that tells it from an unknown model."""
        region = self._regions.get(name)
        if region is None:
            raise unknown_region(name, what)
        return region

    def window(self, what: str, parameters: Mapping[str, pb.InferParameter]) -> Window | None:
        """The window a tensor's parameters name, None when they name no region.

        Raises ModelNotFound for an unknown region, InvalidArgument for parameters of another type or
        a window outside the region; `what` begins the message.
        """
        if REGION not in parameters:
            return None
        name = _parameter(what, parameters, REGION, ("string_param",))
        if not name:
            raise InvalidArgument(f"{what}'{REGION}' must not be empty")
        region = self.get(name, what)
        size = _parameter(what, parameters, BYTE_SIZE, _INTEGERS)
        offset = _parameter(what, parameters, OFFSET, _INTEGERS) if OFFSET in parameters else 0
        if offset < 0 or size < 0 or offset + size > region.size:
            raise InvalidArgument(
                f"{what}{size} bytes at offset {offset} lie outside shared-memory region '{name}' "
                f"of {region.size} bytes"
            )
        return Window(region, offset, size)


def _parameter(
    what: str, parameters: Mapping[str, pb.InferParameter], key: str, accepted: tuple[str, ...]
) -> Any:
    parameter = parameters.get(key)
    choice = None if parameter is None else parameter.WhichOneof("parameter_choice")
    if choice not in accepted:
        raise InvalidArgument(f"{what}'{key}' must be {' or '.join(accepted)}")
    return getattr(parameter, choice)
