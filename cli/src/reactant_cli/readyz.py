"""How far along a server is, from `/readyz` on its HTTP port."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from reactant_cli.failure import USAGE, CommandFailure

_BODY_LIMIT_BYTES = 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """One answer of `/readyz`.

    Attributes:
        ready: the status was 200.
        state: the server's word for what it does, such as `compiling`.
        models: counts `total`, `ready`, `failed`; what is unknown is missing.
        programs: counts `total`, `done`; likewise.
        seconds_left: the server's estimate, None when it has none.
    """

    ready: bool
    state: str = ""
    models: Mapping[str, int] = field(default_factory=dict)
    programs: Mapping[str, int] = field(default_factory=dict)
    seconds_left: float | None = None

    def summary(self) -> str:
        """One line for people."""
        parts = [self.state or ("ready" if self.ready else "not ready")]
        if self.programs.get("total"):
            parts.append(f"{self.programs.get('done', 0)}/{self.programs['total']} programs compiled")
        if self.models.get("total"):
            parts.append(f"{self.models.get('ready', 0)}/{self.models['total']} models ready")
        if self.models.get("failed"):
            parts.append(f"{self.models['failed']} failed")
        if self.seconds_left and not self.ready:
            parts.append(f"about {max(1, round(self.seconds_left))} s left")
        return ", ".join(parts)


def split_address(address: str, option: str) -> tuple[str, int]:
    """Host and port of `host:port` or `http://host:port`.

    Raises:
        CommandFailure: malformed; names `option`.
    """
    host, separator, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandFailure(f"{option} {address!r}: write it as host:port, such as localhost:8002", USAGE)
    return host.removeprefix("[").removesuffix("]"), int(port)


def ask(host: str, port: int, timeout_seconds: float) -> Progress | None:
    """GETs `/readyz`; None when no HTTP server answers in time."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return parse(response.status, response.read(_BODY_LIMIT_BYTES))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def parse(status: int, body: bytes) -> Progress:
    """The progress in an answer; one without a JSON object tells only whether it is ready."""
    ready = status == 200
    try:
        detail = json.loads(body)
    except ValueError:
        return Progress(ready)
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


def _counts(value: Any) -> dict[str, int]:
    return {k: n for k, n in value.items() if isinstance(n, int)} if isinstance(value, dict) else {}
