"""The time a stop may take, and whether what was configured fits into it. Pure."""

from __future__ import annotations

from reactant_policy.shutdown import stop_schedule

STOP_BUDGET_SECONDS = 27.0
"""From the signal to the exit of the whole node; container runtimes kill after 30 s."""

CLOSING_SECONDS = 4.0
"""What a worker may need after its drain for its ports and threads."""


def budget_note(lameduck_seconds: float, drain_timeout_seconds: float) -> str | None:
    """A sentence when a worker that takes all of these times would be killed; None when they fit."""
    if lameduck_seconds + drain_timeout_seconds + CLOSING_SECONDS <= STOP_BUDGET_SECONDS:
        return None
    return (
        f"lameduck_seconds ({lameduck_seconds:g} s) and drain_timeout_seconds ({drain_timeout_seconds:g} s), "
        f"with {CLOSING_SECONDS:g} s to close, do not fit into the {STOP_BUDGET_SECONDS:g} s of a stop: "
        "work still running then is cut off; lower INFERENCE_SERVER_LAMEDUCK_SECONDS or "
        "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS"
    )


def gateway_budget_note(
    lameduck_seconds: float, drain_timeout_seconds: float, *, workers: bool
) -> str | None:
    """The same for a gateway, whose workers, where there are any, have to end after it has drained."""
    share = stop_schedule(STOP_BUDGET_SECONDS, gateway=True, workers=workers).drained_by
    if lameduck_seconds + drain_timeout_seconds <= share:
        return None
    return (
        f"the gateway's lameduck_seconds ({lameduck_seconds:g} s) and drain_timeout_seconds "
        f"({drain_timeout_seconds:g} s) do not fit into its {share:g} s of a stop: work still running then "
        "is cut off; lower REACTANT_GATEWAY_LAMEDUCK_SECONDS or REACTANT_GATEWAY_DRAIN_TIMEOUT_SECONDS"
    )
