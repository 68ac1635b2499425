"""Asks a process's `/readyz` how far along it is."""

from __future__ import annotations

import asyncio

from reactant_core.http_get import http_get
from reactant_core.net import format_address
from reactant_core.progress import Progress, parse_readyz

DRAINED = "drained"
"""What a gateway calls itself when it has answered all it accepted and waits to be let go."""

_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
_ASK_SECONDS = 2.0
_DRAIN_LOOK_SECONDS = 0.05

_DIALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (compared with, not bound)


def dialled(host: str) -> str:
    """Where a server bound on `host` is reached from this machine."""
    return _DIALLED.get(host, host)


async def ask(host: str, port: int) -> Progress | None:
    """GETs `/readyz`; None when nothing answers there (yet), or not in HTTP within two seconds."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            answer = await http_get(format_address(host, port), "/readyz", limit_bytes=_ANSWER_LIMIT_BYTES)
    except (OSError, TimeoutError, ValueError):
        return None
    return parse_readyz(answer.status, answer.body)


async def wait_drained(host: str, port: int, *, every_seconds: float = _DRAIN_LOOK_SECONDS) -> None:
    """Asks until the gateway there says that it has drained."""
    while True:
        progress = await ask(host, port)
        if progress is not None and progress.state == DRAINED:
            return
        await asyncio.sleep(every_seconds)
