"""The node file: one machine's workers and what surrounds them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, final

import yaml
from pydantic import BeforeValidator, ConfigDict, Field

from reactant_core.config.sections import FilePath, Port, Section
from reactant_core.config.worker import DEFAULT_MODELS, Name, SharedSettings

Gpus = int | tuple[str, ...] | None
"""A count (0: a CPU node), selectors handed on verbatim in order, or None: find out."""

_SELECTOR = re.compile(r"\d{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]+")
_GPUS = "auto, a count, or a list of ordinals and GPU-… or MIG-… identifiers"
_GPU = "an ordinal from 0 to 1023 or a GPU-… or MIG-… identifier"


def parse_gpus(value: object) -> Gpus:
    """Reads `gpus:` or `REACTANT_GPUS`: a lone number is a count; a list, or text with commas, is selectors.

    Raises:
        ValueError: neither, a negative count, or the same selector twice.
    """
    if value is None or value == "auto":
        return None
    if isinstance(value, str):
        value = (
            int(value)
            if value.isdecimal()
            else tuple(part.strip() for part in value.split(",") if part.strip())
        )
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= 1024:
            raise ValueError("a count is from 0 to 1024")
        return value
    if not isinstance(value, tuple) or not value:
        raise ValueError(f"accepted is {_GPUS}")
    selectors = []
    for item in value:
        selector = str(item)
        if isinstance(item, bool) or not _SELECTOR.fullmatch(selector):
            raise ValueError(f"{selector!r} is no device; accepted is {_GPUS}")
        if selector in selectors:
            raise ValueError(f"{selector!r} is listed twice")
        selectors.append(selector)
    return tuple(selectors)


def _parse_gpu(value: object) -> object:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1023):
        return value
    if isinstance(value, str) and _SELECTOR.fullmatch(value):
        return int(value) if value.isdecimal() else value
    raise ValueError(f"accepted is {_GPU}")


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


@final
class WorkerEntry(SharedSettings):
    """One entry of `workers:`; whatever else it sets goes over `global:`.

    Attributes:
        name: what routing and metrics call it.
        port: gRPC; None is `base_port` plus the entry's index.
        gpu: ordinal or identifier of its device; None is the entry's index among the devices found.
    """

    name: Name
    port: Port | None = None
    gpu: Annotated[int | str | None, BeforeValidator(_parse_gpu), Field(description=_GPU)] = None


@final
class SupervisorConfig(Section):
    """How children are kept alive: `max_restarts` failed in a row take the node down."""

    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] = 5


@final
class NodeConfig(Section):
    """One machine.

    Attributes:
        role: which services run here.
        registry: `host:port` of a registry to join; None stands alone.
        model_repo: folders whose subfolders are bundles.
        base_port: gRPC port of the first worker; the next has the next.
        metrics_base_port: HTTP port of the first worker.
        public_port: gRPC port of the node.
        public_metrics_port: HTTP port of the node.
        gpus: see `parse_gpus`.
        cpu_workers: workers of a node without GPUs.
        worker_threads: threads of each worker; None is the cores divided by the workers, 16 at most.
        run_dir: sockets and the materialized node file.
        unix_sockets: the gateway of this machine reaches its workers over Unix sockets, not TCP.
        global_: `global:` in the file, the settings of every worker.
        workers: explicit workers; empty makes one per device.
        models: model name to the workers on whose device its weights stay.
    """

    model_config = ConfigDict(populate_by_name=True)

    role: Literal["all", "workers", "gateway", "registry"] = "all"
    registry: Annotated[str, Field(pattern=r"^\S+:\d{1,5}$", description="host:port")] | None = None
    model_repo: Annotated[tuple[FilePath, ...], BeforeValidator(_as_tuple), Field(min_length=1)] = (
        DEFAULT_MODELS,
    )
    base_port: Port = 8080
    metrics_base_port: Port = 9100
    public_port: Port = 8001
    public_metrics_port: Port = 8002
    gpus: Annotated[Gpus, BeforeValidator(parse_gpus), Field(description=_GPUS)] = None
    cpu_workers: Annotated[int, Field(ge=1, le=1024)] = 2
    worker_threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    run_dir: FilePath = Path("/run/reactantserver")
    unix_sockets: bool = True
    supervisor: SupervisorConfig = SupervisorConfig()
    global_: SharedSettings = Field(default=SharedSettings(), alias="global")
    workers: tuple[WorkerEntry, ...] = ()
    models: dict[Annotated[str, Field(min_length=1)], tuple[Name, ...]] = Field(default_factory=dict)

    def to_yaml(self) -> str:
        """What is set in this configuration as a node file that reads back equal."""
        tree = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
