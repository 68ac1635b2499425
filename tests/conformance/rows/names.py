"""Model names and versions."""

from __future__ import annotations

from tests.conformance.row import NOT_STARTED, Code, Row, served
from tests.support.messages import echo, floats


def _unknown(id: str, model: str, *names: str, version: str = "") -> Row:  # noqa: A002
    return Row(id, lambda: echo(model=model, version=version), Code.NOT_FOUND, names, NOT_STARTED)


_FLOATS = {"Y": floats(1, start=1.0)}

ROWS = (
    _unknown("unknown model", "nope", "'nope'"),
    _unknown("unknown model: empty name", ""),
    _unknown("unknown model: other case", "Echo", "'Echo'"),
    _unknown("L4 traversal: ../echo", "../echo", "'../echo'"),
    _unknown("L4 traversal: a/../echo", "a/../echo"),
    _unknown("L4 traversal: ./echo", "./echo"),
    _unknown("L4 traversal: /etc", "/etc"),
    _unknown("L4 traversal: percent-encoded", "%2e%2e"),
    _unknown("L4 traversal: dots", ".."),
    _unknown("L4 name with a NUL", "echo\0"),
    _unknown("L4 name with a line break", "echo\n"),
    _unknown("L4 name in Cyrillic", "модель", "модель"),
    _unknown("unknown model: name of 100,000 characters", "é" * 100_000, "ééé"),
    _unknown("unknown version: 2", "echo", "'echo'", "'2'", version="2"),
    _unknown("unknown version: 0", "echo", "'0'", version="0"),
    _unknown("unknown version: 01", "echo", "'01'", version="01"),
    _unknown("unknown version: -1", "echo", "'-1'", version="-1"),
    _unknown("unknown version: of a hooked model", "params", "'2'", version="2"),
    served("version: 1", lambda: echo(version="1"), _FLOATS),
    served("version: empty", lambda: echo(version=""), _FLOATS),
)
