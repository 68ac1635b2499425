"""Whether a client shares this server's shared memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108 - the mount point of POSIX shared memory, not a temporary file


def same_ipc_namespace(name: str, root: Path = SHM) -> bool:
    """True when the POSIX shared-memory object `name` can be opened here.

    `name` is one path component, after an optional leading `/`; anything else is False, and nothing
    outside `root` is ever opened.
    """
    name = name.removeprefix("/")
    if not name or "/" in name or "\0" in name or name in (".", "..") or len(os.fsencode(name)) > 255:
        return False
    try:
        fd = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
