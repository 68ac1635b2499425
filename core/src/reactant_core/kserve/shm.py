"""POSIX shared-memory objects by name, and nothing else of the file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108 - the mount point of POSIX shared memory, not a temporary file
MAX_NAME_BYTES = 255


def open_shared(name: str, flags: int, root: Path = SHM) -> int:
    """Opens the object `name` and returns its descriptor.

    `name` is one path component, after an optional leading `/`. Anything else, a link, and what is not
    a regular file is a ValueError, and nothing outside `root` is ever opened; OSError when the object
    cannot be opened.
    """
    component = name.removeprefix("/")
    if (
        not component
        or "/" in component
        or "\0" in component
        or component in (".", "..")
        or len(os.fsencode(component)) > MAX_NAME_BYTES
    ):
        raise ValueError("it must be one path component, after an optional leading '/'")
    fd = os.open(root / component, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("it is not a shared-memory object")
    return fd


def same_ipc_namespace(name: str, root: Path = SHM) -> bool:
    """Whether a client shares this server's shared memory: the object `name` can be opened here."""
    try:
        os.close(open_shared(name, os.O_RDONLY, root))
    except (OSError, ValueError):
        return False
    return True
