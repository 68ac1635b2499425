"""What one worker process runs with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import Field

from reactant_core.config.sections import (
    EndpointsConfig,
    FilePath,
    GrpcConfig,
    LogLevel,
    PositiveSeconds,
    RuntimeConfig,
    SchedulerConfig,
    Seconds,
    Section,
)

DEFAULT_MODELS = Path("/var/lib/reactantserver/models")
DEFAULT_NAME = "worker0"
DEFAULT_CACHE = Path("/var/cache/reactantserver")

Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        description="1 to 63 letters, digits, dots, dashes and underscores, the ends letters or digits",
    ),
]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class SharedSettings(Section):
    """What `global:` sets for every worker and each entry of `workers:` may set anew.

    Attributes:
        models_include: serve only these models; empty serves all.
        model_control_mode: `dynamic` follows folders, `static` keeps the first set, `explicit` takes RPCs.
        model_poll_seconds: time between looks at the folders in dynamic mode.
        cache_dir: compiled programs and what else may be kept between starts.
        lameduck_seconds: after a stop was asked for, how long requests are still admitted.
        drain_timeout_seconds: how long accepted work may take after that.
        hook_threads: threads that run `model.py`; 0 is one per core, 16 at most.
        meta_concurrency: metas that call models and run at a time; the others wait.
        log_level: lowest level logged.
    """

    models_include: Names = ()
    model_control_mode: Literal["dynamic", "static", "explicit"] = "dynamic"
    model_poll_seconds: Annotated[PositiveSeconds, Field(ge=0.1)] = 15.0
    cache_dir: FilePath = DEFAULT_CACHE
    lameduck_seconds: Seconds = 2.0
    drain_timeout_seconds: Seconds = 20.0
    hook_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    meta_concurrency: Annotated[int, Field(ge=1, le=1024)] = 2
    log_level: LogLevel = "info"
    runtime: RuntimeConfig = RuntimeConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    endpoints: EndpointsConfig = EndpointsConfig()
    grpc: GrpcConfig = GrpcConfig()


@final
class WorkerConfig(SharedSettings):
    """The effective configuration of one worker.

    Attributes:
        name: what routing and metrics call it.
        model_dirs: folders whose subfolders are bundles.
    """

    name: Name = DEFAULT_NAME
    model_dirs: Annotated[tuple[FilePath, ...], Field(min_length=1)] = (DEFAULT_MODELS,)

    def hook_pool_size(self, cores: int) -> int:
        """Threads for hooks on a machine with `cores` cores for this worker."""
        return self.hook_threads or max(1, min(cores, 16))
