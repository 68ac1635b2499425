"""The body of `/readyz` as its readers see it: how far a server's start is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """One answer of `/readyz`.

    Attributes:
        ready: the status was 200.
        state: the server's word for what it does, such as `starting`; empty when it gave none.
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
        """What is done of how much, as a line for people, without the seconds that change all the time."""
        parts = [self.state or ("ready" if self.ready else "not ready")]
        if self.programs.get("total"):
            parts.append(f"{self.programs.get('done', 0)}/{self.programs['total']} programs")
        if self.models.get("total"):
            parts.append(f"{self.models.get('ready', 0)}/{self.models['total']} models ready")
        if self.models.get("failed"):
            parts.append(f"{self.models['failed']} failed")
        return ", ".join(parts)

    def time_left(self) -> str:
        """What follows the summary: `, about N s left`, or nothing."""
        if self.ready or not self.seconds_left:
            return ""
        return f", about {max(1, round(self.seconds_left))} s left"


def parse_readyz(status: int, body: bytes) -> Progress:
    """The progress in an answer; one without a JSON object tells only whether the server is ready."""
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
    return {str(k): n for k, n in value.items() if isinstance(n, int)} if isinstance(value, dict) else {}
