"""The sections of a worker's configuration, one frozen model each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from reactant_core.config.addresses import checked_socket_path

Port = Annotated[int, Field(ge=1, le=65535)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=86400)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86400)]
MessageBytes = Annotated[int, Field(ge=1024, le=2**31 - 1)]
# Text in files and variables; everything else is strict, so that `port: true` is a fault.
FilePath = Annotated[Path, Strict(False)]
SocketPath = Annotated[Path, Strict(False), AfterValidator(checked_socket_path)]

MAX_WEIGHT = 1e6
"""Largest share of device time relative to other models that can be asked for."""

Residency = Literal["unpinned", "system", "device"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class Section(BaseModel):
    """A part of the configuration: frozen, no unknown keys, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@final
class RuntimeConfig(Section):
    """How programs run on the device.

    Attributes:
        backend: `auto` takes CUDA where there is a device, else the CPU.
        device_ordinal: which of the visible devices.
        mem_fraction: part of the device's memory claimed for the pool (CUDA).
        preallocate: claim the pool at start (CUDA).
        allow_cpu_fallback: serve from the CPU when the asked-for device is missing, instead of failing.
        numerics: `auto`, `f32` (full precision on every device) or `tf32` (fail without that hardware).
        weight_cache_fraction: part of the pool for weights on the device; 0 keeps every weight resident.
        weight_cache_wiggle_fraction: part of the pool kept free against fragmentation.
        weight_budget_bytes: device memory for weights, as the worker reports it to those that place models;
            0 is what the device has, no limit where it tells none.
        autotune: let the compiler time kernels (CUDA).
        autotune_cache: keep what it learned; None leaves it to the compiler.
        autotune_cache_dir: where; None is a folder in the cache directory.
        shared_host_weights: one copy of the weights in shared memory for all workers of the node.
        shared_host_weights_mode: octal permissions of that memory.
    """

    backend: Literal["auto", "cpu", "cuda"] = "auto"
    device_ordinal: Annotated[int, Field(ge=0, le=1023)] = 0
    mem_fraction: PositiveFraction = 0.9
    preallocate: bool = True
    allow_cpu_fallback: bool = False
    numerics: Literal["auto", "f32", "tf32"] = "auto"
    weight_cache_fraction: Fraction = 1.0
    weight_cache_wiggle_fraction: Fraction = 0.1
    weight_budget_bytes: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    autotune: bool = True
    autotune_cache: bool | None = None
    autotune_cache_dir: FilePath | None = None
    shared_host_weights: bool = False
    shared_host_weights_mode: Annotated[
        str, Field(pattern=r"^0?[0-7]{3}$", description='three octal digits in quotes, such as "660"')
    ] = "660"


@final
class ModelSchedulingConfig(Section):
    """One model's own settings.

    Attributes:
        weight: share of device time relative to other models (discipline `fair`).
        residency: lowest tier its weights stay in; None is `system`, or `device` where `models:` pins it.
        max_batch_size: most rows coalesced into one dispatch; None is the largest compiled size.
        max_queue_delay_ms: how long a batch may wait to be filled.
    """

    weight: Annotated[float, Field(gt=0, le=MAX_WEIGHT)] = 1.0
    residency: Residency | None = None
    max_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_queue_delay_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0


@final
class SchedulerConfig(Section):
    """Which requests run next.

    Attributes:
        discipline: `fair`, `fifo` or `edf`.
        ema_halflife_seconds: memory of recent use (fair).
        recency_penalty_cap: bound of share minus recent use (fair).
        coalescing_discount: preference for batches of several requests (fair).
        cost_ema_alpha: weight of the newest measured cost.
        max_queue_depth: most queued requests of one model; more are refused at once.
        compaction_interval: compact device memory after so many weight loads; 0 never.
        models: settings by model name.
    """

    discipline: Literal["fair", "fifo", "edf"] = "fair"
    ema_halflife_seconds: PositiveSeconds = 30.0
    recency_penalty_cap: PositiveFraction = 0.25
    coalescing_discount: Fraction = 0.1
    cost_ema_alpha: PositiveFraction = 0.2
    max_queue_depth: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    compaction_interval: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    models: dict[Annotated[str, Field(min_length=1)], ModelSchedulingConfig] = {}

    def model(self, name: str) -> ModelSchedulingConfig:
        """The settings of model `name`, the defaults when it has none of its own."""
        return self.models.get(name, ModelSchedulingConfig())


@final
class TlsConfig(Section):
    """PEM files of a listener; with `client_ca_file` clients must show a certificate it signed."""

    cert_file: FilePath
    key_file: FilePath
    client_ca_file: FilePath | None = None


@final
class EndpointsConfig(Section):
    """Where a worker listens.

    Attributes:
        host: address or name to bind.
        port: gRPC.
        metrics_port: HTTP with `/healthz`, `/readyz`, `/metrics`.
        unix_socket: gRPC is served at this path as well, mode 660; None is TCP alone.
        max_concurrent_requests: most requests in flight; more are refused at once; 0 is no cap.
        transport: `auto` is native without TLS and where it is installed, else grpcio.
        tls: None is plain text.
    """

    host: Annotated[str, Field(min_length=1)] = "0.0.0.0"  # noqa: S104 (a server is there to be reached)
    port: Port = 8080
    metrics_port: Port = 9100
    unix_socket: SocketPath | None = None
    max_concurrent_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    transport: Literal["auto", "native", "grpcio"] = "auto"
    tls: TlsConfig | None = None


@final
class GrpcConfig(Section):
    """Largest messages, bytes; a node's gateway gets those of its workers."""

    max_recv_msg_bytes: MessageBytes = 512 * 1024 * 1024
    max_send_msg_bytes: MessageBytes = 512 * 1024 * 1024
