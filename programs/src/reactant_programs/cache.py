"""Keeps compiled executables on disk, behind JAX's persistent compilation cache, with counters.

JAX makes the key (program, compiler version and options, device) and serialises the executable. Its own
file layer writes entries in place, trusts what it reads and never replaces a bad one, so files go through
`BlobStore` instead: this is the second user of JAX internals beside `exported`, contract-tested likewise.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface
from jaxlib.version import __version__ as JAXLIB_VERSION  # noqa: N812 - it is a constant

from reactant_programs.settings import set_option
from reactant_programs.store import BlobStore

_HIT: Final = "/jax/compilation_cache/cache_hits"
_REQUEST: Final = "/jax/compilation_cache/compile_requests_use_cache"
_BUILT: Final = "/jax/core/compile/backend_compile_duration"

_RECORD_FORMAT: Final = f"inspection 1, jaxlib {JAXLIB_VERSION}"


@final
@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Executables built in this process since `enable_cache`.

    Attributes:
        hits: loaded from the cache.
        misses: compiled, here or in the child process, since the cache had no usable entry.
        compile_seconds: time in the compiler for the misses, summed over threads.
    """

    hits: int
    misses: int
    compile_seconds: float


def enable_cache(cache_dir: Path) -> None:
    """Keeps executables and inspection records under `cache_dir`, made if it is not there.

    Call it before the first compilation; again with another directory it switches. Whoever can write to
    the directory can run code in this process. A directory that cannot be written, a full disk or a
    damaged entry costs a warning and a compilation, never an error.
    """
    executables, records = BlobStore(cache_dir / "executables"), BlobStore(cache_dir / "inspections")
    executables.prepare()
    records.prepare()
    _counters.listen()
    # XLA's own autotuning files would put this directory's path into every key.
    set_option("jax_persistent_cache_enable_xla_caches", "none")
    set_option("jax_persistent_cache_min_compile_time_secs", 0.0)
    set_option("jax_persistent_cache_min_entry_size_bytes", -1)
    set_option("jax_enable_compilation_cache", True)
    set_option("jax_compilation_cache_dir", str(cache_dir))
    compilation_cache.reset_cache()
    with compilation_cache._cache_initialized_mutex:
        compilation_cache._cache = _JaxCache(executables)
        compilation_cache._cache_initialized = True
    _records.store, _records.directory = records, cache_dir


def disable_cache() -> None:
    """Compiles without a cache from here on, as before the first `enable_cache`."""
    set_option("jax_compilation_cache_dir", None)
    set_option("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    _records.store = _records.directory = None


def cache_directory() -> Path | None:
    """Where executables are kept; None without a cache."""
    return _records.directory


@contextmanager
def asking(build: Callable[[str], bytes | None]) -> Iterator[None]:
    """What this thread looks up in the block and does not find, it asks `build` for, by key.

    `build` gives the entry, or None for a compilation in this thread. JAX turns an Exception of it into a
    warning and compiles.
    """
    _here.build = build
    try:
        yield
    finally:
        _here.build = None


@contextmanager
def noting() -> Iterator[dict[str, bytes]]:
    """The entries, by key, that this thread reads or makes in the block, also where they cannot be stored."""
    noted: dict[str, bytes] = {}
    _here.noted = noted
    try:
        yield noted
    finally:
        _here.noted = None


def cache_statistics() -> CacheStatistics:
    """The counters now; a build in progress counts when it ends."""
    return _counters.read()


def recorded_inspection(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """What `record_inspection` kept for an artifact of these bytes; None without one or without a cache."""
    store = _records.store
    blob = store.get(_record_key(data)) if store is not None else None
    if blob is None:
        return None
    head, _, portable = blob.partition(b"\n")
    return json.loads(head), portable


def record_inspection(data: bytes, found: Mapping[str, Any], portable: bytes) -> None:
    """Keeps an inspection's findings, so that a warm start parses nothing."""
    if (store := _records.store) is not None:
        store.put(_record_key(data), json.dumps(found).encode() + b"\n" + portable)


def _record_key(data: bytes) -> str:
    return f"{_RECORD_FORMAT}, {hashlib.sha256(data).hexdigest()}"


class _JaxCache(CacheInterface):
    """What JAX asks of a cache."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._path = store.directory

    def get(self, key: str) -> bytes | None:
        value = self._store.get(key)
        if value is None and _here.build is not None:
            value = _here.build(key)
            _here.built = value is not None
        if value is not None and _here.noted is not None:
            _here.noted[key] = value
        return value

    def put(self, key: str, value: bytes) -> None:
        if _here.noted is not None:
            _here.noted[key] = value
        self._store.put(key, value)


@final
class _Records:
    """The cache's directory and its store of inspection records, once there is one."""

    directory: Path | None = None
    store: BlobStore | None = None


@final
class _Here(threading.local):
    """What is under way in this thread.

    Attributes:
        pending: JAX has asked for an executable and not said yet that it has it.
        hit: it was there.
        built: it was not, and `build` gave it.
        build: see `asking`.
        noted: see `noting`.
    """

    pending = False
    hit = False
    built = False
    build: Callable[[str], bytes | None] | None = None
    noted: dict[str, bytes] | None = None


@final
class _Counters:
    """Counts from JAX's monitoring events, which arrive in the thread that compiles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening = False
        self._hits = 0
        self._requests = 0
        self._seconds = 0.0

    def listen(self) -> None:
        with self._lock:
            if self._listening:
                return
            self._listening = True
        jax.monitoring.register_event_listener(self._on_event)
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)

    def read(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(self._hits, self._requests - self._hits, self._seconds)

    def _on_event(self, event: str, **_: Any) -> None:
        if event == _REQUEST:
            _here.pending = True
            _here.hit = _here.built = False
        elif event == _HIT:
            _here.hit = not _here.built

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event != _BUILT or not _here.pending:
            return
        _here.pending = False
        with self._lock:
            self._requests += 1
            if _here.hit:
                self._hits += 1
            else:
                self._seconds += duration_secs


_here = _Here()
_records = _Records()
_counters = _Counters()
