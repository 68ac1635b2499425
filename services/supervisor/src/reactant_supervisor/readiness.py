"""Asks a process's `/readyz` how far along it is."""

from __future__ import annotations

import asyncio
import contextlib

from reactant_core.progress import Progress, parse_readyz

_ANSWER_LIMIT_BYTES = 256 * 1024
_ASK_SECONDS = 2.0


async def ask(host: str, port: int) -> Progress | None:
    """GETs `/readyz`; None when nothing answers there (yet), or not in HTTP within two seconds."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            status, body = await _get(host, port, "/readyz")
    except (OSError, TimeoutError, ValueError):
        return None
    return parse_readyz(status, body)


async def _get(host: str, port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        name = f"[{host}]" if ":" in host else host
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {name}:{port}\r\n\r\n".encode("ascii"))
        answer = b""
        while len(answer) <= _ANSWER_LIMIT_BYTES and (chunk := await reader.read(65536)):
            answer += chunk
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise ValueError("not an HTTP answer")
    return int(rest[:3]), body
