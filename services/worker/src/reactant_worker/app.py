"""The worker process: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from reactant_core import logs
from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.config import ConfigError, Effective, WorkerConfig, load_worker_config
from reactant_core.kserve.logsettings import LogSettings
from reactant_core.lifecycle import Stop, run
from reactant_core.net import BindError
from reactant_core.rpc import HealthServicer, add_health, add_reflection, create_server
from reactant_core.web import Readiness, serve_health
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.scheduler import Scheduler
from reactant_programs.cache import cache_statistics, enable_cache
from reactant_proto import POOL, control_pb2_grpc, inference_pb2_grpc
from reactant_worker.device import Device, DeviceError, open_device
from reactant_worker.effective import log_configuration, refused, without_effect
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.dispatcher import Dispatcher
from reactant_worker.metas.runner import MetaRunner
from reactant_worker.metrics import StateCollector, WorkerMetrics, info
from reactant_worker.models.catalog import Catalog, ModelState
from reactant_worker.models.loader import Loader
from reactant_worker.models.policies import ModelPolicies
from reactant_worker.models.repository import Repository
from reactant_worker.models.watch import RepositoryWatch
from reactant_worker.pool import WorkPool
from reactant_worker.reload import Reload
from reactant_worker.rpc.admission import Admission, QueueCount
from reactant_worker.rpc.control import ControlServicer, WorkerTerms
from reactant_worker.rpc.counted import CountedInfer
from reactant_worker.rpc.direct import DirectInfer
from reactant_worker.rpc.infer import InferPath
from reactant_worker.rpc.inference import InferenceServicer
from reactant_worker.rpc.regions import Regions
from reactant_worker.vitals import Vitals

_log = logs.get_logger(__name__)

EX_OK, EX_FAILURE, EX_CONFIG = 0, 1, 78
"""Exit codes; 78 (sysexits' EX_CONFIG) tells a supervisor that a restart cannot help."""

_INFER = "/inference.GRPCInferenceService/ModelInfer"
_STOP_GRACE_SECONDS = 1.0
_QUIET_SECONDS = 0.05

_MAX_LOAD_THREADS = 4
"""Enough to overlap reading and compiling, few enough to leave cores to requests."""

_COMPILE_NICENESS = 10
"""XLA compiles on every core it gets: requests go first. Not for threads that wait for the compiler's own
process: what they do themselves is done holding the interpreter, and for whoever waits for that the less
they get of a core the worse."""


class StartupError(Exception):
    """The worker cannot start as it is configured; the text says why and what to set."""


@final
class Worker:
    """One process, one device. Construct on the event loop that serves."""

    def __init__(self, config: WorkerConfig) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._startup: Mapping[str, Path] = {}
        self._device: asyncio.Future[Device] = loop.create_future()
        self._watch: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        cores = len(os.sched_getaffinity(0))
        self._hook_pool = WorkPool(config.hook_pool_size(cores), "hook")
        self._load_pool = WorkPool(min(cores, _MAX_LOAD_THREADS), "load")
        self._compile_pool = WorkPool(min(cores, _MAX_LOAD_THREADS), "compile", niceness=_COMPILE_NICENESS)
        self._beside_pool = WorkPool(min(cores, _MAX_LOAD_THREADS), "compile-beside")
        self._registry = CollectorRegistry()
        self._metrics = WorkerMetrics(self._registry)
        self._health = HealthServicer()
        self._catalog = Catalog(self._readiness_changed)
        self._bridge = EngineBridge(loop)
        discipline = make_discipline(
            config.scheduler.discipline,
            ema_halflife_seconds=config.scheduler.ema_halflife_seconds,
            recency_penalty_cap=config.scheduler.recency_penalty_cap,
            coalescing_discount=config.scheduler.coalescing_discount,
        )
        scheduler = Scheduler(discipline, cost_ema_alpha=config.scheduler.cost_ema_alpha)
        self._engine = Dispatcher(scheduler, SYSTEM_CLOCK, self._bridge.deliver)
        self._bridge.connect(self._engine)
        self._vitals = Vitals(self._engine, self._health)
        self._metas = MetaRunner(
            catalog=self._catalog,
            bridge=self._bridge,
            clock=SYSTEM_CLOCK,
            concurrency=config.meta_concurrency,
            compute_threads=config.hook_pool_size(cores),
        )
        self._queued = QueueCount(
            engine=self._engine, bridge=self._bridge, hook_pool=self._hook_pool, metas=self._metas.waiting
        )
        self._admission = Admission(
            max_concurrent_requests=config.endpoints.max_concurrent_requests,
            max_queue_depth=config.scheduler.max_queue_depth,
            queued=self._queued,
        )
        self._policies = ModelPolicies(config.scheduler)
        self._repository = Repository(config.model_dirs, config.models_include)
        self._loader = Loader(
            catalog=self._catalog,
            engine=self._engine,
            device=self._device,
            pool=self._load_pool,
            compile_pool=self._compile_pool,
            beside_pool=self._beside_pool,
            clock=SYSTEM_CLOCK,
            terms=self._policies.terms,
        )
        self._rpc = create_server(
            transport=config.endpoints.transport,
            max_recv_msg_bytes=config.grpc.max_recv_msg_bytes,
            max_send_msg_bytes=config.grpc.max_send_msg_bytes,
        )
        self._web = serve_health(
            config.endpoints.host,
            config.endpoints.metrics_port,
            ready=self._readyz,
            registry=self._registry,
        )
        self._registry.register(
            StateCollector(self._catalog, self._loader.totals, self._queued, self._process_metrics)
        )

    async def start(self) -> None:
        """Opens both ports: live from here on, not ready.

        Raises BindError naming the address, StartupError when no model directory can be read.
        """
        config = self._config
        found = await asyncio.to_thread(self._look_for_bundles)
        if config.model_control_mode != "explicit":
            self._startup = found
            await self._loader.announce(found)
        regions = Regions()
        counted = CountedInfer(
            infer=InferPath(
                catalog=self._catalog,
                admission=self._admission,
                bridge=self._bridge,
                hook_pool=self._hook_pool,
                metas=self._metas,
                metrics=self._metrics,
                clock=SYSTEM_CLOCK,
                regions=regions,
                max_response_bytes=config.grpc.max_send_msg_bytes,
            ),
            catalog=self._catalog,
            metrics=self._metrics,
            clock=SYSTEM_CLOCK,
        )
        direct = DirectInfer(
            catalog=self._catalog,
            admission=self._admission,
            bridge=self._bridge,
            counted=counted,
            metrics=self._metrics,
            clock=SYSTEM_CLOCK,
            max_response_bytes=config.grpc.max_send_msg_bytes,
        )
        self._rpc.offer(_INFER, direct)
        servicer = InferenceServicer(
            catalog=self._catalog,
            repository=self._repository,
            infer=counted,
            regions=regions,
            log_settings=LogSettings(os.environ.get(logs.FORMAT_VARIABLE, "default")),
            ready=lambda: self._vitals.ready,
            totals=self._loader.totals,
            loader=self._loader,
            control_mode=config.model_control_mode,
            device_kind=self._device_kind,
        )
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, self._rpc.server)
        control_pb2_grpc.add_ControlServiceServicer_to_server(self._control(), self._rpc.server)
        add_health(self._rpc, self._health)
        add_reflection(self._rpc, [POOL])
        port = self._rpc.bind(config.endpoints.host, config.endpoints.port)
        unix_socket = config.endpoints.unix_socket
        if unix_socket is not None:
            self._rpc.bind_unix(unix_socket)
        await self._web.start()
        await self._rpc.start()
        self._engine.start()
        self._watch = asyncio.create_task(self._vitals.watch())
        _log.info(
            "listening",
            grpc=f"{config.endpoints.host}:{port}",
            unix="" if unix_socket is None else str(unix_socket),
            http=f"{config.endpoints.host}:{self._web.port}",
            transport=self._rpc.transport,
            transport_reason=self._rpc.reason,
            discipline=config.scheduler.discipline,
        )

    async def load(self) -> None:
        """Starts the device and settles the start-up set. Raises DeviceError."""
        config = self._config
        await asyncio.to_thread(enable_cache, config.cache_dir)
        device = await asyncio.to_thread(open_device, config.runtime)
        # What is there by now stays, JAX above all. A full collection that went through it would stop every
        # thread for 0.2 s each time.
        gc.collect()
        gc.freeze()
        self._device.set_result(device)
        _log.info("device", kind=device.kind, name=device.name)
        if config.model_control_mode != "explicit":
            await self._loader.load_all(self._startup)
        self._vitals.enter("ready")
        progress, compiled = self._loader.progress, cache_statistics()
        _log.info(
            "ready",
            models=progress.models_ready,
            failed=progress.models_failed,
            programs=progress.programs_done,
            compiled=compiled.misses,
            from_cache=compiled.hits,
            seconds=round(SYSTEM_CLOCK.monotonic() - progress.started, 2),
        )
        if config.model_control_mode == "dynamic":
            watch = RepositoryWatch(self._repository, self._loader, config.model_poll_seconds)
            self._following = asyncio.create_task(watch.run())

    def set_weight(self, model: str, weight: float) -> None:
        """Puts a model's share of device time in force, for its later versions too."""
        self._policies.set_weight(model, weight)
        entry = self._catalog.get(model)
        if entry is not None and entry.model is not None and not entry.model.meta:
            self._engine.set_weight(entry.model.key, weight)

    async def wait_died(self) -> str:
        """Returns, with the reason, when the gRPC server has ended without having been stopped."""
        return await self._rpc.wait_died()

    async def drain(self) -> None:
        """Announces the end, goes on admitting for the lame-duck time, then finishes what was accepted."""
        config = self._config
        self._vitals.enter("draining")
        if self._following is not None:
            self._following.cancel()
        _log.info("draining", in_flight=self._admission.in_flight)
        await asyncio.sleep(config.lameduck_seconds)
        self._admission.draining = True
        try:
            async with asyncio.timeout(config.drain_timeout_seconds):
                await self._admission.wait_idle()
        except TimeoutError:
            _log.warning("drain timed out", in_flight=self._admission.in_flight)
        await self._admission.wait_quiet(_QUIET_SECONDS, _STOP_GRACE_SECONDS)

    async def stop(self) -> bool:
        """Closes the ports and ends the threads; False when something still runs in one of them."""
        if self._watch is not None:
            self._watch.cancel()
        self._health.shutdown()
        await self._rpc.stop(_STOP_GRACE_SECONDS)
        await self._web.stop()
        self._hook_pool.close()
        self._metas.close()
        self._load_pool.close()
        self._compile_pool.close()
        self._beside_pool.close()
        ended = await asyncio.to_thread(self._engine.stop, _STOP_GRACE_SECONDS)
        _log.info("stopped")
        pools = (self._hook_pool, self._metas, self._load_pool, self._compile_pool, self._beside_pool)
        return ended and not any(pool.running for pool in pools)

    def _control(self) -> ControlServicer:
        config = self._config
        terms = WorkerTerms(
            name=config.name,
            control_mode=config.model_control_mode,
            discipline=config.scheduler.discipline,
            gpu=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            max_concurrent_requests=config.endpoints.max_concurrent_requests,
            weight_budget_bytes=config.runtime.weight_budget_bytes,
        )
        return ControlServicer(
            terms=terms,
            catalog=self._catalog,
            policies=self._policies,
            set_weight=self.set_weight,
            totals=self._loader.totals,
            queued=self._queued,
            device=lambda: self._device.result() if self._device.done() else None,
        )

    def _look_for_bundles(self) -> dict[str, Path]:
        scan = self._repository.scan()
        if len(scan.unreadable) == len(self._config.model_dirs):
            reasons = "; ".join(f"{path}: {reason}" for path, reason in scan.unreadable)
            raise StartupError(f"no model directory can be read ({reasons}); set INFERENCE_SERVER_MODEL_DIRS")
        for path, reason in scan.unreadable:
            _log.warning("model directory cannot be read", path=str(path), reason=reason)
        for name, hidden in scan.shadowed:
            _log.warning("bundle is hidden by one of the same name", model=name, path=str(hidden))
        for name in self._repository.missing(scan):
            _log.warning("no bundle for an included model", model=name)
        bundles = self._repository.served(scan)
        if not bundles:
            dirs = ":".join(map(str, self._config.model_dirs))
            _log.warning("no models found", dirs=dirs, set="INFERENCE_SERVER_MODEL_DIRS")
        for path in self._config.model_dirs:
            if (path / "manifest.yaml").is_file():
                _log.warning("a model directory is itself a bundle, name its parent", path=str(path))
        return bundles

    def _readyz(self) -> Readiness:
        failed = {e.name: e.reason for e in self._catalog.visible() if e.state is ModelState.UNAVAILABLE}
        detail = {
            "state": self._vitals.state,
            **self._loader.progress.body(SYSTEM_CLOCK.monotonic()),
            "failed": failed,
            "stalled_seconds": round(self._engine.stalled_seconds(), 1),
        }
        return Readiness(self._vitals.ready, detail)

    def _readiness_changed(self, name: str, ready: bool | None) -> None:
        if ready is None:
            self._health.remove(name)
            self._metrics.forget(name)
        else:
            self._health.set(name, serving=ready)

    def _device_kind(self) -> str:
        return self._device.result().kind

    def _process_metrics(self) -> Iterable[Metric]:
        progress, programs = self._loader.progress, cache_statistics()
        yield GaugeMetricFamily(
            "worker_inflight_requests", "Requests admitted and not answered.", value=self._admission.in_flight
        )
        yield GaugeMetricFamily(
            "worker_max_concurrent_requests",
            "Cap on requests in flight.",
            value=self._admission.max_concurrent_requests,
        )
        yield GaugeMetricFamily(
            "worker_stalled_seconds",
            "How long the present execution is overdue; above 0 the worker is not ready.",
            value=self._engine.stalled_seconds(),
        )
        startup = GaugeMetricFamily("worker_startup_models", "Start-up set by state.", labels=["state"])
        startup.add_metric(["ready"], progress.models_ready)
        startup.add_metric(["failed"], progress.models_failed)
        startup.add_metric(
            ["loading"], progress.models_total - progress.models_ready - progress.models_failed
        )
        yield startup
        yield CounterMetricFamily(
            "worker_compile_seconds", "Time spent compiling programs.", value=programs.compile_seconds
        )
        yield CounterMetricFamily(
            "worker_compile_cache_hits", "Executables taken from the cache.", value=programs.hits
        )
        yield CounterMetricFamily(
            "worker_compile_cache_misses", "Executables that had to be compiled.", value=programs.misses
        )
        labels = {
            "version": version("reactant-worker"),
            "name": self._config.name,
            "discipline": self._config.scheduler.discipline,
            "control_mode": self._config.model_control_mode,
            "transport": self._rpc.transport,
        }
        if self._device.done():
            device = self._device.result()
            labels |= {"device": device.name, "platform": device.kind}
            yield from device.memory()
        yield info(labels)


async def serve(effective: Effective[WorkerConfig], stop: Stop) -> int:
    """Runs a worker until `stop` is requested; returns the exit code."""
    log_configuration(effective)
    for note in without_effect(effective):
        _log.warning(note)
    worker = Worker(effective.value)
    stop.on_reload = Reload(effective, lambda: load_worker_config(os.environ), worker.set_weight)
    try:
        await worker.start()
    except (BindError, StartupError) as error:
        _log.error("cannot start", reason=str(error))
        return EX_CONFIG
    loading = asyncio.create_task(worker.load())
    stopping = asyncio.create_task(stop.requested.wait())
    died = asyncio.create_task(worker.wait_died())
    await asyncio.wait((loading, stopping, died), return_when=asyncio.FIRST_COMPLETED)
    try:
        if loading.done():
            loading.result()
            await asyncio.wait((stopping, died), return_when=asyncio.FIRST_COMPLETED)
    except DeviceError as error:
        _log.error("no device", reason=str(error))
        return EX_CONFIG
    finally:
        loading.cancel()
        stopping.cancel()
    if died.done():
        _log.error("nobody can call any more; ending, to be started anew", reason=died.result())
        leave_at_once(EX_FAILURE)
    died.cancel()
    await worker.drain()
    if not await worker.stop():
        leave_at_once(EX_OK)
    return EX_OK


def leave_at_once(code: int) -> NoReturn:
    """Ends the process while a thread still computes, compiles or is in a hook.

    The interpreter's own shutdown would wait for it, or pull libraries away under it.
    """
    _log.warning("something still runs; leaving without it")
    logging.shutdown()
    os._exit(code)


def main() -> int:
    """Console entry point of `reactant-worker`."""
    faulthandler.enable()  # a crash in bundle code or in XLA names the Python line it came from
    try:
        effective = load_worker_config(os.environ)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"reactant-worker: {fault}\n")
        return EX_CONFIG
    logs.configure_logs(effective.value.log_level)
    refusals = refused(effective)
    for refusal in refusals:
        _log.error(refusal)
    return EX_CONFIG if refusals else run(partial(serve, effective))
