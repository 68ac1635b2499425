from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reactant_core.rpc import create_channel, create_sync_channel
from reactant_core.testing import async_test

Serving = Callable[..., Any]


@async_test
async def test_a_blocking_channel(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:

        def call() -> bytes:
            with create_sync_channel(f"127.0.0.1:{served.port}") as channel:
                answer: bytes = channel.unary_unary("/test.Echo/Say", bytes, bytes)(
                    b"x" * 5_000_000, timeout=10
                )
                return answer

        assert await asyncio.to_thread(call) == b"x" * 5_000_000


@async_test
async def test_a_proxy_in_the_environment_is_not_asked(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    async with serving("auto") as served, create_channel(f"127.0.0.1:{served.port}") as channel:
        assert await channel.unary_unary("/test.Echo/Say", bytes, bytes)(b"x", timeout=5) == b"x"


def test_limits_out_of_range() -> None:
    with pytest.raises(ValueError, match="max_send_msg_bytes = 0"):
        create_sync_channel("127.0.0.1:1", max_send_msg_bytes=0)
