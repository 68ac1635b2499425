"""The run directory: sockets and generated files of one running node, gone when it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import final

_PREFIX = "reactantserver-"
_MODE = 0o750


@final
class RunDir:
    """A directory that is this process's alone while it lives; made by `open_run_dir`.

    Attributes:
        path: where it is.
        note: why it is not the one asked for, None when it is.
    """

    def __init__(self, path: Path, lock: int, *, ours: bool, note: str | None) -> None:
        self.path = path
        self.note = note
        self._lock = lock
        self._ours = ours
        self._names: set[str] = set()

    def file(self, name: str) -> Path:
        """The path of `name` in it; what is there at the end is removed."""
        self._names.add(name)
        return self.path / name

    def write(self, name: str, text: str) -> Path:
        """Writes a file whole, for its user and group.

        Raises:
            OSError: it cannot be written.
        """
        path, draft = self.file(name), self.file(f".{name}")
        # A draft that is there already is somebody else's, or of a node that was killed.
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
        return path

    def close(self) -> None:
        """Removes what was made: the files, and the directory if it was not there before."""
        for name in self._names:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        if self._ours:
            with contextlib.suppress(OSError):
                self.path.rmdir()
        os.close(self._lock)


def open_run_dir(asked: Path, *, temporary: Path | None = None) -> RunDir:
    """Takes `asked`, or a new temporary folder where that cannot be made, written or is another node's.

    Raises:
        OSError: not even a temporary folder can be made.
    """
    try:
        ours = _make(asked)
        _check_owner(asked)
        lock = _lock(asked)
    except OSError as error:
        note = f"{asked} cannot be used ({(error.strerror or str(error)).lower()})"
    else:
        if lock is not None and os.access(asked, os.W_OK | os.X_OK):
            return RunDir(asked.absolute(), lock, ours=ours, note=None)
        note = f"{asked} is another node's" if lock is None else f"{asked} is not writable"
        if lock is not None:
            os.close(lock)
    root = temporary or Path(tempfile.gettempdir())
    _remove_dead(root)
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root)).absolute()
        path.chmod(_MODE)
        # Between these two calls it looks like a dead node's to one that starts now.
        with contextlib.suppress(FileNotFoundError):
            if (lock := _lock(path)) is not None:
                return RunDir(path, lock, ours=True, note=f"{note}: using {path}")


def _make(path: Path) -> bool:
    """Whether it had to be made."""
    try:
        path.mkdir(_MODE)
    except FileExistsError:
        return False
    except FileNotFoundError:
        path.mkdir(_MODE, parents=True)
    return True


def _check_owner(path: Path) -> None:
    """Workers take their configuration from here: nobody else may put another in its place.

    Raises:
        PermissionError: it belongs to somebody else, or others may replace files in it.
    """
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, f"others may write there, mode {found.st_mode & 0o7777:o}")


def _lock(path: Path) -> int | None:
    """A descriptor that holds the directory until it is closed or the process ends; None: another's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another node may have removed it, or made it anew, meanwhile.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BlockingIOError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove_dead(root: Path) -> None:
    """Removes the temporary folders of nodes that were killed."""
    for left in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = left.lstat()
            if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                continue
            lock = _lock(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
