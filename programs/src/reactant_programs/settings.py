"""Sets JAX's options, whose setter has no types."""

from __future__ import annotations

import jax


def set_option(name: str, value: bool | int | float | str | None) -> None:
    """Sets one of JAX's process-wide options, such as "jax_enable_x64"."""
    jax.config.update(name, value)  # type: ignore[no-untyped-call]
