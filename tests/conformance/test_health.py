"""grpc.health.v1: the server as a whole and each model, Check and Watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.client import Client
from tests.support.target import Target

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


@contextmanager
def watching(client: Client, name: str) -> Iterator[Any]:
    stream = client.health.Watch(HealthCheckRequest(service=name), timeout=30)
    try:
        yield stream
    finally:
        stream.cancel()


@pytest.mark.parametrize("name", ["", "echo", "params"])
def test_check_of_what_serves(target: Target, name: str) -> None:
    assert target.client.health.Check(HealthCheckRequest(service=name), timeout=5).status == SERVING


@pytest.mark.parametrize("name", ["nope", "../echo", "é" * 10_000])
def test_check_of_an_unknown_name(target: Target, name: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        target.client.health.Check(HealthCheckRequest(service=name), timeout=5)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert len((caught.value.details() or "").encode()) <= 1024


def test_watch_of_an_unknown_name_stays_open(explicit: Target) -> None:
    with watching(explicit.client, "echo_f16") as stream:
        assert next(stream).status == SERVICE_UNKNOWN
        assert stream.is_active()

        explicit.client.load("echo_f16").ok()
        seen = next(stream).status
        if seen == NOT_SERVING:  # while it loaded
            seen = next(stream).status
        assert seen == SERVING

        explicit.client.unload("echo_f16").ok()
        seen = next(stream).status
        if seen == NOT_SERVING:  # while it was being unloaded
            seen = next(stream).status
        assert seen == SERVICE_UNKNOWN
        assert stream.is_active()


def test_watch_gives_the_status_at_once_and_not_again(target: Target) -> None:
    with watching(target.client, "") as whole, watching(target.client, "echo") as model:
        assert next(whole).status == SERVING
        assert next(model).status == SERVING
        target.assert_well()
        assert whole.is_active()
        assert model.is_active()


@pytest.mark.slow
def test_many_watchers_come_and_go(target: Target) -> None:
    for _ in range(200):
        with watching(target.client, "echo") as stream:
            assert next(stream).status == SERVING
    target.assert_well()
