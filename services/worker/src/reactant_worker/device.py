"""The one device this process computes on. The only module that sets XLA's process-wide switches."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, final

import jax
from prometheus_client.core import GaugeMetricFamily, Metric

from reactant_core.config import RuntimeConfig
from reactant_core.logs import get_logger
from reactant_programs.settings import set_option

_log = get_logger(__name__)

_MEMORY_SERIES = {
    "bytes_in_use": ("worker_device_memory_in_use_bytes", "Device memory in use."),
    "peak_bytes_in_use": ("worker_device_memory_peak_in_use_bytes", "Most device memory ever in use."),
    "bytes_limit": ("worker_device_memory_limit_bytes", "Device memory this process may use."),
    "pool_bytes": ("worker_device_memory_pool_bytes", "Device memory the allocator holds."),
    "largest_free_block_bytes": (
        "worker_device_memory_largest_free_block_bytes",
        "Largest allocation possible without compaction.",
    ),
}


class DeviceError(Exception):
    """No device of the kind that was asked for."""


@final
class Device:
    """A JAX device and what is known of it."""

    def __init__(self, device: jax.Device) -> None:
        self.jax = device
        self.kind = "cpu" if device.platform == "cpu" else "cuda"
        self.name = device.device_kind

    def bytes_in_use(self) -> int:
        """Bytes of device memory in use; 0 where the backend keeps no account (CPU)."""
        return int(self._account().get("bytes_in_use", 0))

    def largest_free_block(self) -> int:
        """Largest allocation possible without compaction, bytes; 0 where the backend does not tell."""
        return int(self._account().get("largest_free_block_bytes", 0))

    def memory_limit(self) -> int:
        """Bytes of device memory this process may use; 0 where the backend sets no limit (CPU)."""
        return int(self._account().get("bytes_limit", 0))

    def _account(self) -> dict[str, Any]:
        return self.jax.memory_stats() or {}

    def memory(self) -> Iterable[Metric]:
        """Gauges of the device's memory; none where the backend keeps no account (CPU)."""
        statistics = self._account()
        for key, (name, text) in _MEMORY_SERIES.items():
            if key in statistics:
                yield GaugeMetricFamily(name, text, value=statistics[key])
        if "bytes_limit" in statistics and "bytes_in_use" in statistics:
            yield GaugeMetricFamily(
                "worker_device_memory_free_bytes",
                "Device memory not in use.",
                value=statistics["bytes_limit"] - statistics["bytes_in_use"],
            )


def open_device(config: RuntimeConfig) -> Device:
    """Starts the backend and picks the device. Call before anything else touches JAX devices.

    Raises:
        DeviceError: no such device, naming what was asked for, what there is, and what to set.
    """
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if config.preallocate else "false"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{config.mem_fraction:g}"
    if config.backend == "cpu":
        set_option("jax_platforms", "cpu")
        return Device(_pick("cpu", 0))
    try:
        return Device(_pick("cuda", config.device_ordinal))
    except (RuntimeError, DeviceError) as error:
        if config.backend == "cuda" and not config.allow_cpu_fallback:
            raise DeviceError(
                f"runtime.backend is cuda, but there is no usable CUDA device: {error}; install "
                "the CUDA extra and check the driver, or set runtime.backend to cpu or "
                "runtime.allow_cpu_fallback to true"
            ) from error
        if config.backend == "cuda":
            _log.warning("no CUDA device, falling back to the CPU", reason=str(error))
        return Device(_pick("cpu", 0))


def _pick(platform: str, ordinal: int) -> jax.Device:
    devices = jax.devices(platform)
    if ordinal >= len(devices):
        raise DeviceError(
            f"device_ordinal {ordinal} is past the {len(devices)} {platform} device(s) there are"
        )
    return devices[ordinal]
