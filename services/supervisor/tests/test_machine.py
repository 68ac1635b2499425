"""Looking at the machine, with a stand-in for NVML."""
# ruff: noqa: N802 (the names are NVML's)

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reactant_supervisor.devices import ProbeError
from reactant_supervisor.machine import available_cores, device_files, nvml_devices


class NvmlError(Exception):
    pass


class Nvml(SimpleNamespace):
    """Two devices, the second divided; `broken` names the call that fails."""

    NVMLError = NvmlError
    NVML_DEVICE_MIG_ENABLE = 1

    def __init__(self, broken: str = "", error: Exception | None = None) -> None:
        super().__init__(broken=broken, error=error or NvmlError("Insufficient Permissions"), open=0)

    def _may(self, call: str) -> None:
        if self.broken == call:
            raise self.error

    def nvmlInit(self) -> None:
        self._may("init")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._may("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        self._may("count")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self._may("handle")
        return f"GPU-{index}"

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        self._may("mig")
        return (1, 1) if handle == "GPU-1" else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index == 1:
            raise NvmlError("Not Found")
        return f"MIG-{handle}-{index}"

    def nvmlDeviceGetUUID(self, handle: str) -> Any:
        return handle.encode() if handle == "GPU-0" else handle


def look(monkeypatch: pytest.MonkeyPatch, nvml: object) -> list[str]:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return list(nvml_devices())


def test_identifiers_come_in_order_and_instances_stand_for_a_divided_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = Nvml()
    assert look(monkeypatch, nvml) == ["GPU-0", "MIG-GPU-1-0", "MIG-GPU-1-2"]
    assert nvml.open == 0


def test_a_device_that_knows_no_division_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, Nvml("mig")) == ["GPU-0", "GPU-1"]


def test_a_shutdown_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(look(monkeypatch, Nvml("shutdown"))) == 3


@pytest.mark.parametrize("call", ["init", "count", "handle"])
@pytest.mark.parametrize("error", [None, AttributeError("undefined symbol: nvmlInit_v2"), OSError("no file")])
def test_whatever_nvml_fails_with_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, call: str, error: Exception | None
) -> None:
    nvml = Nvml(call, error)
    with pytest.raises(ProbeError, match=str(error or "Insufficient Permissions")):
        look(monkeypatch, nvml)
    assert nvml.open == 0


def test_a_package_that_is_missing_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeError, match="pynvml cannot be imported"):
        look(monkeypatch, None)


def test_this_machine_can_be_looked_at() -> None:
    with contextlib.suppress(ProbeError):
        assert all(name.startswith(("GPU-", "MIG-")) for name in nvml_devices())
    assert device_files() >= 0


def test_device_files_are_counted(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    assert device_files(tmp_path) == 2
    assert device_files(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50000 100000", 1), ("max 100000", None), ("99900000 100000", None), ("", None), (None, None)],
)
def test_a_containers_quota_bounds_the_cores(tmp_path: Path, text: str | None, expected: int | None) -> None:
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(text)
    assert available_cores(file) == (expected or len(os.sched_getaffinity(0)))
