"""Paths of Unix sockets to listen on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from reactant_core.net import BindError

LONGEST_PATH_BYTES: Final = 107
"""What the kernel's address has room for, the zero at its end left out."""

SOCKET_MODE: Final = 0o660
"""Owner and group may connect."""


def claim(path: Path) -> None:
    """Makes sure that a socket can be bound at `path`; removes one there that nobody listens on.

    Raises:
        BindError: the path is too long, or something is there that must stay; names path and cause.
    """
    length = len(os.fsencode(path))
    if length > LONGEST_PATH_BYTES:
        raise _cannot(path, f"the path has {length} bytes, a Unix socket takes {LONGEST_PATH_BYTES} at most")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot(path, _cause(error)) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise _cannot(path, "there is something that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A listener whose queue is full would have a blocking connect wait.
        probe.setblocking(False)
        reached = probe.connect_ex(os.fspath(path))
    if reached in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise _cannot(path, "address already in use")
    if reached not in (errno.ECONNREFUSED, errno.ENOENT):
        raise _cannot(path, os.strerror(reached).lower())
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot(path, _cause(error)) from error


def unix_bind_failure(path: Path, reported: BaseException) -> BindError:
    """The error for a library's failed bind, with the cause the library may have swallowed."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.bind(os.fspath(path))
    except OSError as error:
        return _cannot(path, _cause(error))
    with contextlib.suppress(OSError):
        path.unlink()
    return _cannot(path, str(reported))


def _cannot(path: Path, cause: str) -> BindError:
    return BindError(f"cannot listen on unix:{path}: {cause}")


def _cause(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
