"""Looks at the machine: its devices and the processor time it has."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reactant_supervisor.devices import ProbeError, Probes

_DEVICE_FILE = re.compile(r"nvidia\d+")


def probes() -> Probes:
    """The real ones."""
    return Probes(nvml_devices, device_files)


def nvml_devices() -> Sequence[str]:
    """Identifiers of this machine's devices as NVML orders them; MIG instances stand for a divided device.

    Raises:
        ProbeError: the package, the library or the driver is missing, or access is refused.
    """
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ProbeError(f"pynvml cannot be imported: {error}") from error
    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            return [name for index in range(count) for name in _identifiers(pynvml, index)]
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    # A library that does not fit its bindings fails with whatever ctypes makes of it.
    except Exception as error:
        raise ProbeError(str(error) or type(error).__name__) from error


def _identifiers(nvml: Any, index: int) -> list[str]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:
        divided = False
    if not divided:
        return [_text(nvml.nvmlDeviceGetUUID(handle))]
    instances = []
    for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)
            instances.append(_text(nvml.nvmlDeviceGetUUID(part)))
    return instances


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def device_files(folder: Path = Path("/dev")) -> int:
    """How many device files of NVIDIA GPUs there are."""
    try:
        return sum(1 for name in os.listdir(folder) if _DEVICE_FILE.fullmatch(name))
    except OSError:
        return 0


def available_cores(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may keep busy: those it may run on, or fewer by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cores
