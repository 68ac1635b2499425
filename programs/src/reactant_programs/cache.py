"""JAX's persistent compilation cache, turned on, with counters."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jax

from reactant_programs.settings import set_option

_lock = threading.Lock()
_counts = {"hits": 0, "misses": 0}
_seconds = [0.0]
_listening = False


@final
@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Since this process started.

    Attributes:
        hits: executables loaded instead of compiled.
        misses: executables that had to be compiled.
        compile_seconds: time spent in the compiler.
    """

    hits: int
    misses: int
    compile_seconds: float


def enable_cache(cache_dir: Path) -> None:
    """Keeps compiled executables under `cache_dir`, which need not exist; call before compiling."""
    global _listening  # noqa: PLW0603 - one listener a process
    with _lock:
        if not _listening:
            jax.monitoring.register_event_listener(_on_event)
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
            _listening = True
    set_option("jax_persistent_cache_min_compile_time_secs", 0.0)
    set_option("jax_persistent_cache_min_entry_size_bytes", -1)
    set_option("jax_compilation_cache_dir", str(cache_dir))


def cache_statistics() -> CacheStatistics:
    """The counters now."""
    with _lock:
        return CacheStatistics(_counts["hits"], _counts["misses"], _seconds[0])


def _on_event(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        with _lock:
            _counts["hits"] += 1
    elif event == "/jax/compilation_cache/cache_misses":
        with _lock:
            _counts["misses"] += 1


def _on_duration(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        with _lock:
            _seconds[0] += duration_secs
