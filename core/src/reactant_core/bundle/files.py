"""Opening a bundle's files without trusting what they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from reactant_core.bundle.errors import BundleError


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file for unbuffered reading; links to one are followed.

    Raises:
        BundleError: when it cannot be opened or is something else. A FIFO or a device in a bundle
            would otherwise block the loader for good.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"{path.name}: cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{path.name}: is not a regular file")
    with open(descriptor, "rb", buffering=0) as file:
        yield file


def read_exactly(file: BinaryIO, count: int, what: str) -> bytes:
    """Reads `count` bytes from where `file` stands; BundleError when the file ends before."""
    data = file.read(count)  # a regular file gives all of it at once, unless a signal comes between
    while len(data) < count:
        part = file.read(count - len(data))
        if not part:
            ended = f"ended after {len(data)} of {count} bytes; is it still being copied?"
            raise BundleError(f"{what}: {ended}")
        data += part
    return data


def read_small(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes; a larger one is refused by its size."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise BundleError(f"{path.name}: is {size} bytes; at most {limit} are read")
        return read_exactly(file, size, path.name)
