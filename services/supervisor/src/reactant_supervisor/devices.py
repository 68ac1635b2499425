"""Which CUDA devices this machine's workers get. Pure: what looks at the machine is handed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from reactant_core.config import ConfigError, Effective, Fault, NodeConfig
from reactant_core.config.effective import DEFAULT
from reactant_supervisor.settings import worker_setting

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

_SELECTOR = re.compile(r"\d{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]+")
_CPU_INSTEAD = "for a CPU node set REACTANT_GPUS=0 and runtime.backend to cpu or auto"


class ProbeError(Exception):
    """A way of finding devices cannot be used; the text is the reason."""


@final
@dataclass(frozen=True, slots=True)
class Probes:
    """How to look at the machine.

    Attributes:
        nvml: identifiers of the devices that NVML shows, MIG instances in place of a divided device.
            Raises ProbeError.
        device_files: how many `/dev/nvidiaN` there are.
    """

    nvml: Callable[[], Sequence[str]]
    device_files: Callable[[], int]


@final
@dataclass(frozen=True, slots=True)
class Devices:
    """What was found.

    Attributes:
        selectors: what `CUDA_VISIBLE_DEVICES` is for each worker, in order; empty on a CPU node.
        source: how they were found, for people.
        notes: what a user should know of the search, a sentence each.
    """

    selectors: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Found:
    selectors: tuple[str, ...]
    source: str
    certain: bool
    notes: tuple[str, ...] = ()


def visible_devices(text: str) -> tuple[tuple[str, ...], str]:
    """Reads `CUDA_VISIBLE_DEVICES` as CUDA does: selectors before the first that is none, and the rest.

    Ordinals, GPU-… and MIG-… identifiers (prefixes too) are selectors, once each; `-1` and anything else end
    the list.
    """
    items = [item.strip() for item in text.split(",")]
    if items and not items[-1]:
        items.pop()
    taken: list[str] = []
    for index, item in enumerate(items):
        if not _SELECTOR.fullmatch(item) or item in taken:
            return tuple(taken), ",".join(items[index:])
        taken.append(item)
    return tuple(taken), ""


def find_devices(node: Effective[NodeConfig], visible: str | None, probes: Probes) -> Devices:
    """The devices of a node, by the first that says something: `gpus`, `visible`, NVML, device files.

    Args:
        node: its configuration; `REACTANT_GPUS` has gone into `gpus` already.
        visible: the value of `CUDA_VISIBLE_DEVICES`; an empty one counts as not set.
        probes: looked through only when they decide.

    Raises:
        ConfigError: none where there must be one, fewer than asked for, or some where none may be used.
    """
    gpus, source = node.value.gpus, node.sources.get("gpus", DEFAULT)
    backends = _backends(node)
    if backends == {"cpu"}:
        if gpus is not None and gpus != 0:
            count = gpus if isinstance(gpus, int) else len(gpus)
            problem = f"{count} asked for, but runtime.backend is cpu; set it to auto or cuda, or gpus to 0"
            raise ConfigError([Fault("gpus", problem, source)])
        return Devices((), "runtime.backend is cpu")
    if isinstance(gpus, tuple):
        return Devices(gpus, source)
    found = _Found((), source, certain=True) if gpus == 0 else _search(visible, probes)
    if gpus:
        return _counted(gpus, source, found)
    if not found.selectors and "cuda" in backends and not _may_fall_back(node):
        problem = (
            f"is cuda, but no device was found ({found.source}); check the driver and that devices are "
            f"granted to this machine or container, or name them in REACTANT_GPUS; {_CPU_INSTEAD}"
        )
        raise ConfigError(
            [Fault("runtime.backend", problem, node.sources.get("global.runtime.backend", DEFAULT))]
        )
    return Devices(found.selectors, found.source, found.notes)


def _backends(node: Effective[NodeConfig]) -> set[str]:
    return {str(worker_setting(node, index, "runtime.backend")[0]) for index in _indexes(node)}


def _may_fall_back(node: Effective[NodeConfig]) -> bool:
    return all(worker_setting(node, index, "runtime.allow_cpu_fallback")[0] for index in _indexes(node))


def _indexes(node: Effective[NodeConfig]) -> range:
    return range(max(1, len(node.value.workers)))


def _counted(count: int, source: str, found: _Found) -> Devices:
    if len(found.selectors) >= count:
        return Devices(found.selectors[:count], f"{source}, {found.source}", found.notes)
    if found.certain:
        named = f": {', '.join(found.selectors)}" if found.selectors else ""
        problem = f"{count} asked for, {len(found.selectors)} found ({found.source}){named}"
        raise ConfigError([Fault("gpus", problem, source)])
    # The one who asks knows of devices that this process cannot see.
    return Devices(tuple(str(n) for n in range(count)), f"{source}, not checked", found.notes)


def _search(visible: str | None, probes: Probes) -> _Found:
    notes: list[str] = []
    if visible is not None and visible.strip():
        selectors, rest = visible_devices(visible)
        if rest:
            kept = ", ".join(selectors) or "no device"
            notes.append(f"{VISIBLE_DEVICES}={visible} ends at {rest!r}, as in CUDA: it stands for {kept}")
        return _Found(selectors, VISIBLE_DEVICES, certain=True, notes=tuple(notes))
    if visible is not None:
        notes.append(f"{VISIBLE_DEVICES} is empty and counts as not set; REACTANT_GPUS=0 asks for no device")
    try:
        selectors = tuple(probes.nvml())
    except ProbeError as error:
        return _by_files(str(error), probes, notes)
    if selectors:
        return _Found(selectors, "NVML", certain=True, notes=tuple(notes))
    return _by_files(None, probes, notes)


def _by_files(nvml_fault: str | None, probes: Probes, notes: list[str]) -> _Found:
    count = probes.device_files()
    if nvml_fault is not None and count:
        # On a machine without a device this says nothing that "no device" does not.
        notes.append(f"NVML cannot be used ({nvml_fault}): counted /dev/nvidia* instead")
    selectors = tuple(str(n) for n in range(count))
    if selectors:
        return _Found(selectors, "/dev/nvidia*", certain=True, notes=tuple(notes))
    reason = "NVML shows none" if nvml_fault is None else f"NVML: {nvml_fault}"
    return _Found((), f"{reason}, no /dev/nvidia*", certain=nvml_fault is None, notes=tuple(notes))
