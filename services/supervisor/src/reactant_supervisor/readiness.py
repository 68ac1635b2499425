"""Asks a process's `/readyz` how far along it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

_ANSWER_LIMIT_BYTES = 256 * 1024
_ASK_SECONDS = 2.0


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """One answer of `/readyz`.

    Attributes:
        ready: the status was 200.
        state: the process's own word for what it does, such as `compiling`.
        models: counts `total`, `ready`, `failed`.
        programs: counts `total`, `done`.
        seconds_left: its estimate, None when it has none.
    """

    ready: bool
    state: str = ""
    models: Mapping[str, int] | None = None
    programs: Mapping[str, int] | None = None
    seconds_left: float | None = None

    def summary(self) -> str:
        """What is done of how much, as a line for people, without the seconds that change all the time."""
        parts = [self.state or ("ready" if self.ready else "not ready")]
        if self.programs and self.programs.get("total"):
            parts.append(f"{self.programs.get('done', 0)}/{self.programs['total']} programs")
        if self.models and self.models.get("total"):
            parts.append(f"{self.models.get('ready', 0)}/{self.models['total']} models ready")
        if self.models and self.models.get("failed"):
            parts.append(f"{self.models['failed']} failed")
        return ", ".join(parts)


async def ask(host: str, port: int) -> Progress | None:
    """GETs `/readyz`; None when nothing answers there (yet), or not in HTTP within two seconds."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            status, body = await _get(host, port, "/readyz")
    except (OSError, TimeoutError, ValueError):
        return None
    return _progress(status, body)


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


def _progress(status: int, body: bytes) -> Progress:
    ready = status == 200
    try:
        detail = json.loads(body)
    except ValueError:
        detail = None
    if not isinstance(detail, dict):
        return Progress(ready)
    left = detail.get("seconds_left")
    return Progress(
        ready,
        str(detail.get("state", "")),
        _counts(detail.get("models")),
        _counts(detail.get("programs")),
        float(left) if isinstance(left, int | float) else None,
    )


def _counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, dict):
        return None
    return {str(key): number for key, number in value.items() if isinstance(number, int)}
