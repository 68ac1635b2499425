"""A directory of checked blobs that processes share: a bad entry is a miss, a failed write a warning."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, final

from reactant_core.logs import get_logger

_MAGIC: Final = b"RSBLOB1\n"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_TEMPORARY_PREFIX: Final = ".writing-"
_ABANDONED_SECONDS: Final = 3600.0

_log = get_logger(__name__)


@final
class BlobStore:
    """Blobs by key, each with its SHA-256 in front, written beside and renamed into place.

    Readers therefore see a whole entry or none, and an entry that was cut or altered by other hands is
    taken out and counts as a miss. Best effort throughout: no method raises for what the disk does; the
    first failure of each kind is logged. Safe to call from many threads and processes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def prepare(self) -> None:
        """Makes the directory, and removes what writers that died have left for over an hour."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            cutoff = time.time() - _ABANDONED_SECONDS
            for path in self.directory.glob(f"{_TEMPORARY_PREFIX}*"):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < cutoff:
                        path.unlink()
        except OSError as error:
            self._warn("cannot be used", error)

    def get(self, key: str) -> bytes | None:
        """The blob, or None when there is none or it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("cannot be read", error)
            return None
        head, payload = data[: len(_MAGIC) + _DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
        if head == _MAGIC + hashlib.sha256(payload).digest():
            return payload
        _log.warning("cache entry is damaged and is made again", path=str(path), size=len(data))
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, key: str, payload: bytes) -> None:
        """Stores the blob, in place of an older one."""
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=self.directory)
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(_MAGIC + hashlib.sha256(payload).digest())
                file.write(payload)
            os.replace(temporary, self._path(key))
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            self._warn("cannot be written", error)

    def _path(self, key: str) -> Path:
        # Keys hold module names, which can be longer than a file name may be.
        return self.directory / hashlib.sha256(key.encode()).hexdigest()

    def _warn(self, what: str, error: OSError) -> None:
        kind = f"{what} {errno.errorcode.get(error.errno or 0, '')}"
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        _log.warning(f"cache directory {what}; going on without", path=str(self.directory), error=str(error))
