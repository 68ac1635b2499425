"""Which JAX a checkout installs: for the CPU, for CUDA 12 or for CUDA 13."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Final

EXTRAS: Final = {12: "cuda12", 13: "cuda13"}
"""CUDA major version -> the optional dependency of the workspace that installs JAX for it."""

DEFAULT_MAJOR: Final = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """What to install and why.

    Attributes:
        extra: `cuda12`, `cuda13`, or None for the CPU.
        reason: a sentence fragment for the set-up log.
    """

    extra: str | None
    reason: str


class ChoiceError(Exception):
    """REACTANT_GPU or REACTANT_GPU_VERSION holds something that is not accepted."""


def choose(gpu: str | None, version: str | None, driver: tuple[int, int] | None) -> Choice:
    """Decides what to install.

    Args:
        gpu: REACTANT_GPU: `cuda`, `cpu`, or None or empty to go by the driver.
        version: REACTANT_GPU_VERSION: a CUDA version such as `12`, `12.9` or `13.1`; None or empty to
            go by the driver.
        driver: the newest CUDA version that the NVIDIA driver supports, None without a driver.

    Raises:
        ChoiceError: naming every value that is not accepted.
    """
    gpu, version = (gpu or "").strip().lower(), (version or "").strip()
    major = _major(version)
    faults = []
    if gpu not in {"", "cuda", "cpu"}:
        faults.append(f"REACTANT_GPU={gpu!r} is not accepted: use cuda or cpu, or leave it unset")
    if version and major not in EXTRAS:
        accepted = " or ".join(str(known) for known in EXTRAS)
        faults.append(
            f"REACTANT_GPU_VERSION={version!r} is not accepted: use a CUDA version starting with {accepted}"
        )
    if faults:
        raise ChoiceError("; ".join(faults))

    if gpu == "cpu":
        return Choice(None, "REACTANT_GPU=cpu")
    if gpu == "cuda":
        named = f" REACTANT_GPU_VERSION={version}" if version else ""
        return Choice(EXTRAS[major or DEFAULT_MAJOR], f"REACTANT_GPU=cuda{named}")
    if driver is None:
        return Choice(None, "no NVIDIA driver answers")
    seen = f"the driver supports CUDA {driver[0]}.{driver[1]}"
    if major is not None:
        return Choice(EXTRAS[major], f"REACTANT_GPU_VERSION={version}; {seen}")
    newest = max((known for known in EXTRAS if known <= driver[0]), default=None)
    if newest is None:
        return Choice(None, f"{seen}, JAX needs {min(EXTRAS)} or newer")
    return Choice(EXTRAS[newest], seen)


def _major(version: str) -> int | None:
    match = re.fullmatch(r"(\d{1,3})(\.\d{1,3}){0,2}", version)
    return int(match[1]) if match else None


def parse_driver_version(report: str) -> tuple[int, int] | None:
    """Reads the CUDA version from what `nvidia-smi` prints; None when it names none."""
    match = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+)\.(\d+)", report)
    return (int(match[1]), int(match[2])) if match else None


def driver_version() -> tuple[int, int] | None:
    """Asks `nvidia-smi` which CUDA version the driver supports; None without a working driver."""
    try:
        report = subprocess.run(
            ["nvidia-smi"],  # noqa: S607 - wherever the driver's package put it
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_driver_version(report.stdout)
