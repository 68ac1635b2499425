"""What the metrics page and ModelStatistics say is what clients saw."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from typing import Any

import grpc
import pytest
from tests.support.busy import busy_device
from tests.support.client import replies
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow
from tests.support.metrics import Page
from tests.support.settings import INTERNAL_MODELS, SHARED_MODELS
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

FAMILIES = {
    "worker_requests": "counter",
    "worker_request_latency_seconds": "histogram",
    "worker_queue_wait_seconds": "histogram",
    "worker_queue_depth": "gauge",
    "worker_dispatch": "counter",
    "worker_compute_seconds": "counter",
    "worker_requests_served": "counter",
    "worker_rows_served": "counter",
    "worker_requests_shed": "counter",
    "worker_inflight_requests": "gauge",
    "worker_max_concurrent_requests": "gauge",
    "worker_model_max_batch_size": "gauge",
    "worker_model_resident": "gauge",
    "worker_model_weight_bytes": "gauge",
    "worker_models_loaded": "gauge",
    "worker_models_resident": "gauge",
    "worker_compile_seconds": "counter",
    "worker_compile_cache_hits": "counter",
    "worker_compile_cache_misses": "counter",
    "worker_startup_models": "gauge",
    "worker_info": "gauge",
    "process_resident_memory_bytes": "gauge",
}


def change(before: Page, after: Page, name: str, **labels: str) -> float:
    return after.value(name, **labels) - before.value(name, **labels)


def statistics(target: Target, model: str) -> Any:
    answer = target.client.call("ModelStatistics", pb.ModelStatisticsRequest(name=model)).ok()
    (found,) = answer.model_stats
    return found


def test_the_page_has_the_documented_families(target: Target) -> None:
    types = target.page().types

    assert {name: types.get(name) for name in FAMILIES} == FAMILIES


def test_the_page_describes_the_models(target: Target) -> None:
    page = target.page()

    loaded = {*SHARED_MODELS, *INTERNAL_MODELS}
    assert page.value("worker_models_loaded") == len(loaded) * target.replicas
    assert page.value("worker_startup_models", state="ready") == len(loaded) * target.replicas
    assert page.value("worker_model_max_batch_size", model="echo") == 4 * target.replicas
    assert page.value("worker_model_weight_bytes", model="columns") == 12 * target.replicas
    assert page.labels("model", "worker_queue_depth") == loaded
    transport = "native" if target.behind_gateway else target.name.removeprefix("worker-")
    assert page.labels("transport", "worker_info") == {transport}


def test_promtool_accepts_the_page(target: Target) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    page = target.process.get("/metrics").body

    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_counters_equal_what_the_client_saw(target: Target, hook_log: HookLog, steps_of: int) -> None:
    target.assert_well()
    before = target.page()
    requests = (
        [echo()] * 3
        + [echo(2)] * 2
        + [echo(0)]
        + [echo(5)]
        + [echo(model="nope")] * 2
        + [echo(version="7")]
        + [echo(model="hook_faults", parameters={"fault": "raise"})]
        + [echo(model="hook_faults", parameters={"fault": "invalid"})] * 2
        + [slow(1, parameters={"timeout": 1})]
    )
    with busy_device(target, hook_log, steps_of) as busy:
        cancelled = target.client.start_infer(slow(1))
        eventually_sync(lambda: target.depth("slow") == 1)
        cancelled.cancel()
        eventually_sync(lambda: target.depth("slow") == 0)
    outcomes = replies([*map(target.client.start_infer, requests), cancelled])
    eventually_sync(lambda: target.in_flight() == 0)
    after = target.page()

    seen = Counter(reply.code.name for reply in [*outcomes, *replies(busy)])
    assert seen.keys() == {
        "OK",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "INTERNAL",
        "DEADLINE_EXCEEDED",
        "CANCELLED",
    }
    counted = {code: change(before, after, target.requests_total, code=code) for code in seen}
    assert counted == dict(seen)
    by_model = {
        (model, code): change(before, after, target.requests_total, model=model, code=code)
        for model in ("echo", "hook_faults", "slow")
        for code in seen
    }
    assert {key: count for key, count in by_model.items() if count} == {
        ("echo", "OK"): 6,
        ("echo", "INVALID_ARGUMENT"): 1,
        ("echo", "NOT_FOUND"): 1,
        ("hook_faults", "INTERNAL"): 1,
        ("hook_faults", "INVALID_ARGUMENT"): 2,
        ("slow", "OK"): len(busy),
        ("slow", "DEADLINE_EXCEEDED"): 1,
        ("slow", "CANCELLED"): 1,
    }
    assert change(before, after, "worker_request_latency_seconds_count", model="echo") == 6
    assert change(before, after, "worker_queue_wait_seconds_count", model="echo") == 5
    assert change(before, after, "worker_requests_served_total", model="echo") == 5
    assert change(before, after, "worker_rows_served_total", model="echo") == 7
    assert change(before, after, "worker_requests_served_total", model="slow") == len(busy)
    assert change(before, after, "worker_dispatch_total", model="slow") == len(busy)
    assert change(before, after, "worker_requests_shed_total", reason="deadline") == 1
    assert change(before, after, "worker_requests_shed_total", reason="cancelled") == 1


@pytest.mark.slow
def test_compute_time_is_the_devices(target: Target, hook_log: HookLog, steps_of: int) -> None:
    before = target.page()
    with busy_device(target, hook_log, steps_of) as running:
        waiting = target.client.start_infer(slow(1))
    took, waited = sum(reply.seconds for reply in replies(running)), waiting.reply().seconds
    after = target.page()

    computed = change(before, after, "worker_compute_seconds_total", model="slow")
    assert 0.5 * took < computed <= took + waited
    assert change(before, after, "worker_queue_wait_seconds_sum", model="slow") > 0.5 * waited


def test_statistics(target: Target) -> None:
    before = statistics(target, "add2"), target.page()
    sound = pb.ModelInferRequest(model_name="add2")
    for name in "AB":
        sound.inputs.add(name=name, datatype="FP32", shape=[3, 4])
        sound.raw_input_contents.append(bytes(48))
    for _ in range(4):
        target.client.infer(sound).ok()
    for _ in range(2):
        reply = target.client.infer(echo(model="add2"))
        assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    after = statistics(target, "add2"), target.page()

    old, new = before[0], after[0]
    assert (new.name, new.version) == ("add2", "1")
    assert new.inference_count - old.inference_count == 12
    assert new.execution_count - old.execution_count == change(
        before[1], after[1], "worker_dispatch_total", model="add2"
    )
    assert new.last_inference >= old.last_inference > -1
    for part, count in {
        "success": 4,
        "fail": 2,
        "queue": 4,
        "compute_input": 4,
        "compute_infer": 4,
        "compute_output": 4,
    }.items():
        old_part, new_part = getattr(old.inference_stats, part), getattr(new.inference_stats, part)
        assert new_part.count - old_part.count == count, part
        assert new_part.ns > old_part.ns, part


def test_statistics_of_all_models(target: Target) -> None:
    answer = target.client.call("ModelStatistics", pb.ModelStatisticsRequest()).ok()

    assert {one.name for one in answer.model_stats} == set(SHARED_MODELS)


@pytest.mark.slow
def test_m4_five_thousand_unknown_names_are_no_series(target: Target) -> None:
    target.client.infer(echo(model="unknown"))
    before = target.page()

    for start in range(0, 5_000, 500):  # on each of the two transports
        pending = [
            target.client.start_infer(echo(model=f'no-such-{index}"\\\n'))
            for index in range(start, start + 500)
        ]
        for reply in replies(pending):
            assert reply.code is grpc.StatusCode.NOT_FOUND

    after = target.page()
    assert after.samples.keys() == before.samples.keys()
    assert change(before, after, target.requests_total, code="NOT_FOUND") == 5_000
    target.assert_well()
