"""Messages as JSON has them, and quantities as people read them."""

from __future__ import annotations

from typing import Any

from reactant_proto import gateway_pb2


def plain(value: Any) -> Any:
    """A message's fields by name, those at their default included; None for a message or an optional value
    that is absent, `all` or the count for replicas."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, gateway_pb2.Replicas):
        return "all" if value.all else value.count
    if hasattr(value, "DESCRIPTOR"):
        return {
            field.name: None
            if field.has_presence and not value.HasField(field.name)
            else plain(getattr(value, field.name))
            for field in value.DESCRIPTOR.fields
        }
    if hasattr(value, "items"):
        return {key: plain(item) for key, item in sorted(value.items())}
    return [plain(item) for item in value]


def bytes_text(count: int) -> str:
    """`3.5 MiB`; empty for 0."""
    if not count:
        return ""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
