"""Which devices a node has, decided from what was set and what the machine shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from reactant_core.config import ConfigError, load_node_config
from reactant_supervisor.devices import Devices, ProbeError, Probes, find_devices, visible_devices

UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2", "MIG-cccc-3")


def shows(*names: str) -> Callable[[], Sequence[str]]:
    return lambda: names


def fails(reason: str) -> Callable[[], Sequence[str]]:
    def probe() -> Sequence[str]:
        raise ProbeError(reason)

    return probe


def forbidden() -> Sequence[str]:
    raise AssertionError("NVML was asked although something before it decides")


def find(
    environ: dict[str, str] | None = None,
    visible: str | None = None,
    *,
    nvml: Callable[[], Sequence[str]] = forbidden,
    files: int = 0,
) -> Devices:
    return find_devices(load_node_config(environ or {}), visible, Probes(nvml, lambda: files))


@pytest.mark.parametrize(
    ("text", "selectors", "rest"),
    [
        ("0", ("0",), ""),
        ("1,0", ("1", "0"), ""),
        (" 1 , 0 ", ("1", "0"), ""),
        ("0,", ("0",), ""),
        ("GPU-1f3a9b52-0000-4444-8888-aaaaaaaaaaaa", ("GPU-1f3a9b52-0000-4444-8888-aaaaaaaaaaaa",), ""),
        ("GPU-1f,GPU-2", ("GPU-1f", "GPU-2"), ""),
        ("MIG-0c8a-1", ("MIG-0c8a-1",), ""),
        ("MIG-GPU-0c8a/1/0,2", ("MIG-GPU-0c8a/1/0", "2"), ""),
        ("0,junk,1", ("0",), "junk,1"),
        ("0,-1,1", ("0",), "-1,1"),
        ("-1", (), "-1"),
        ("junk", (), "junk"),
        ("0,,1", ("0",), ",1"),
        ("0,1,0", ("0", "1"), "0"),
        ("", (), ""),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(
    text: str, selectors: tuple[str, ...], rest: str
) -> None:
    assert visible_devices(text) == (selectors, rest)


@pytest.mark.parametrize(
    ("environ", "visible", "nvml", "files", "selectors", "source"),
    [
        ({"REACTANT_GPUS": "GPU-1f,3"}, "7", forbidden, 9, ("GPU-1f", "3"), "REACTANT_GPUS"),
        ({"REACTANT_GPUS": "0"}, "7", forbidden, 9, (), "REACTANT_GPUS"),
        ({"REACTANT_GPUS": "2"}, "3,1,0", forbidden, 9, ("3", "1"), "REACTANT_GPUS, CUDA_VISIBLE_DEVICES"),
        ({"REACTANT_GPUS": "2"}, None, shows(*UUIDS), 9, UUIDS[:2], "REACTANT_GPUS, NVML"),
        ({"REACTANT_GPUS": "2"}, None, fails("no"), 3, ("0", "1"), "REACTANT_GPUS, /dev/nvidia*"),
        ({"REACTANT_GPUS": "2"}, None, fails("no"), 0, ("0", "1"), "REACTANT_GPUS, not checked"),
        ({}, "MIG-9/1/0,1", forbidden, 9, ("MIG-9/1/0", "1"), "CUDA_VISIBLE_DEVICES"),
        ({}, "-1", forbidden, 9, (), "CUDA_VISIBLE_DEVICES"),
        ({}, "", shows(*UUIDS), 9, UUIDS, "NVML"),
        ({}, None, shows(*UUIDS), 9, UUIDS, "NVML"),
        ({}, None, shows(), 2, ("0", "1"), "/dev/nvidia*"),
        ({}, None, shows(), 0, (), "NVML shows none, no /dev/nvidia*"),
        ({}, None, fails("driver not loaded"), 0, (), "NVML: driver not loaded, no /dev/nvidia*"),
        ({"INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"}, "0", forbidden, 9, (), "runtime.backend is cpu"),
        ({"REACTANT_GPUS": "0", "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"}, "0", forbidden, 9, (), None),
    ],
)
def test_the_first_that_says_something_decides(
    environ: dict[str, str],
    visible: str | None,
    nvml: Callable[[], Sequence[str]],
    files: int,
    selectors: tuple[str, ...],
    source: str | None,
) -> None:
    found = find(environ, visible, nvml=nvml, files=files)
    assert found.selectors == selectors
    if source is not None:
        assert found.source == source


def test_the_node_file_comes_before_what_the_machine_shows(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("gpus: [GPU-b, GPU-a]\n")
    found = find({"REACTANT_NODE_FILE": str(file)}, "7")
    assert (found.selectors, found.source) == (("GPU-b", "GPU-a"), f"{file}:1")
    assert find({"REACTANT_NODE_FILE": str(file), "REACTANT_GPUS": "5,"}, "7").selectors == ("5",)


@pytest.mark.parametrize("reason", ["NVML Shared Library Not Found", "Insufficient Permissions"])
def test_nvml_that_fails_is_one_note(reason: str) -> None:
    found = find(nvml=fails(reason), files=1)
    assert found.selectors == ("0",)
    (note,) = found.notes
    assert reason in note


def test_a_machine_without_devices_is_no_note() -> None:
    assert find(nvml=fails("NVML Shared Library Not Found")).notes == ()


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        ("0,junk", ("ends at 'junk'", "stands for 0")),
        ("-1", ("ends at '-1'", "no device")),
        ("", ("counts as not set",)),
    ],
)
def test_what_is_read_otherwise_than_it_looks_is_said(visible: str, said: tuple[str, ...]) -> None:
    (note,) = find({}, visible, nvml=shows("GPU-1")).notes
    assert all(part in note for part in said)


@pytest.mark.parametrize(
    ("environ", "visible", "nvml", "files", "said"),
    [
        (
            {"REACTANT_GPUS": "3"},
            "4,5",
            forbidden,
            0,
            ("3 asked for, 2 found", "CUDA_VISIBLE_DEVICES", "4, 5"),
        ),
        ({"REACTANT_GPUS": "4"}, None, shows(*UUIDS), 0, ("4 asked for, 3 found (NVML)",)),
        ({"REACTANT_GPUS": "2"}, None, fails("x"), 1, ("2 asked for, 1 found",)),
        ({"REACTANT_GPUS": "1"}, None, shows(), 0, ("1 asked for, 0 found",)),
        ({"REACTANT_GPUS": "1"}, "-1", forbidden, 3, ("1 asked for, 0 found",)),
        (
            {"REACTANT_GPUS": "0,1", "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"},
            None,
            forbidden,
            3,
            ("2 asked",),
        ),
        ({"INFERENCE_SERVER_RUNTIME_BACKEND": "cuda"}, None, fails("x"), 0, ("REACTANT_GPUS=0", "NVML: x")),
        ({"INFERENCE_SERVER_RUNTIME_BACKEND": "cuda"}, "-1", forbidden, 2, ("no device was found",)),
        (
            {"INFERENCE_SERVER_RUNTIME_BACKEND": "cuda", "REACTANT_GPUS": "0"},
            None,
            forbidden,
            2,
            ("no device was found (REACTANT_GPUS)",),
        ),
    ],
)
def test_devices_that_cannot_be_had_are_a_fault(
    environ: dict[str, str],
    visible: str | None,
    nvml: Callable[[], Sequence[str]],
    files: int,
    said: tuple[str, ...],
) -> None:
    with pytest.raises(ConfigError) as raised:
        find(environ, visible, nvml=nvml, files=files)
    assert all(part in str(raised.value) for part in said), raised.value


def test_a_fallback_that_is_allowed_makes_a_cpu_node() -> None:
    environ = {
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cuda",
        "INFERENCE_SERVER_RUNTIME_ALLOW_CPU_FALLBACK": "true",
    }
    assert find(environ, nvml=fails("x")).selectors == ()
