from __future__ import annotations

import pytest
from tools.accelerator import ChoiceError, choose, parse_driver_version

REPORT = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
"""


@pytest.mark.parametrize(
    ("gpu", "version", "driver", "extra"),
    [
        (None, None, None, None),
        (None, None, (11, 8), None),
        (None, None, (12, 2), "cuda12"),
        (None, None, (13, 1), "cuda13"),
        (None, None, (14, 0), "cuda13"),
        ("", "", (12, 8), "cuda12"),
        (None, "12.9", (13, 0), "cuda12"),
        (None, "13", (13, 0), "cuda13"),
        (None, "13", None, None),
        ("cuda", None, None, "cuda12"),
        ("cuda", None, (13, 0), "cuda12"),
        ("CUDA", "13.1", None, "cuda13"),
        ("cuda", "12", (13, 0), "cuda12"),
        ("cpu", None, (12, 8), None),
        ("cpu", "13", (13, 0), None),
    ],
)
def test_choice(
    gpu: str | None, version: str | None, driver: tuple[int, int] | None, extra: str | None
) -> None:
    assert choose(gpu, version, driver).extra == extra


def test_the_reason_names_what_decided() -> None:
    assert choose(None, None, (12, 8)).reason == "the driver supports CUDA 12.8"
    assert choose("cpu", None, (12, 8)).reason == "REACTANT_GPU=cpu"
    assert "JAX needs 12" in choose(None, None, (11, 8)).reason


@pytest.mark.parametrize("version", ["11", "14.0", "cuda12", "12.", "12.9.1.2", "-12", "twelve"])
def test_a_version_that_is_not_offered_is_refused(version: str) -> None:
    with pytest.raises(ChoiceError, match=r"REACTANT_GPU_VERSION=.*12 or 13"):
        choose(None, version, (12, 8))


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ChoiceError, match=r"REACTANT_GPU='rocm'.*REACTANT_GPU_VERSION='6'"):
        choose("rocm", "6", None)


@pytest.mark.parametrize(
    ("report", "version"),
    [
        (REPORT, (12, 8)),
        ("CUDA Version        : 13.0", (13, 0)),
        ("CUDA UMD Version: 13.2", (13, 2)),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("| CUDA Version: N/A |", None),
        ("", None),
    ],
)
def test_driver_report(report: str, version: tuple[int, int] | None) -> None:
    assert parse_driver_version(report) == version
