"""What only a worker in model control mode `explicit` does by request."""

from __future__ import annotations

from reactant_core.errors import ModelUnavailable


def require_explicit(control_mode: str, what: str) -> None:
    """Raises ModelUnavailable, saying that `what` happens only in explicit mode, in any other."""
    if control_mode != "explicit":
        raise ModelUnavailable(
            f"model_control_mode is {control_mode}; {what} by request only in explicit mode"
        )
