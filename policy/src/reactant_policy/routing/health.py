"""When a worker counts as reachable, and when to look next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, final

FAILURES_TO_EJECT: Final = 3
FIRST_RETRY_SECONDS: Final = 0.25
LONGEST_RETRY_SECONDS: Final = 1.0

_STEPS: Final = 2
"""Doublings from the first to the longest retry."""


@final
class Outcome(Enum):
    """What one probe of a worker came to."""

    READY = auto()
    NOT_READY = auto()
    """It answered, and is not ready: no fault, but no requests either."""
    FAILED = auto()
    """No answer in time, or an error."""
    REFUSED = auto()
    """The connection was refused or reset: nothing serves there."""


@final
@dataclass(frozen=True, slots=True)
class ProbeState:
    """What the probes so far say of a worker; the initial one is of a worker never seen.

    Attributes:
        available: it gets requests.
        failures: probes failed in a row.
        retries: probes since it was last steady, that is ready twice in a row; 0 while it is.
    """

    available: bool = False
    failures: int = 0
    retries: int = 0


def after_probe(state: ProbeState, outcome: Outcome) -> ProbeState:
    """The state after a probe: three failures in a row eject, a refusal or "not ready" at once."""
    retries = min(state.retries + 1, _STEPS + 1)
    match outcome:
        case Outcome.READY:
            # Ready once more while in service: it is steady again. One that comes and goes stays on the
            # longer delays.
            return ProbeState(True, 0, 0 if state.available else retries)
        case Outcome.NOT_READY:
            return ProbeState(False, 0, retries)
        case Outcome.REFUSED:
            return ProbeState(False, state.failures + 1, retries)
        case Outcome.FAILED:
            failures = state.failures + 1
            if state.available and failures < FAILURES_TO_EJECT:
                return replace(state, failures=failures)
            return ProbeState(False, failures, retries)


def after_loss(state: ProbeState) -> ProbeState:
    """The state of a worker whose connection was refused or reset outside of a probe."""
    return replace(state, available=False, failures=max(state.failures, 1))


def next_probe_seconds(state: ProbeState, probe_seconds: float) -> float:
    """Wait before the next probe.

    `probe_seconds` in service, 0.25 s after a failure there; out of service none after a loss, else 0.25 s
    doubling to 1 s.
    """
    if state.available:
        return FIRST_RETRY_SECONDS if state.failures else probe_seconds
    if state.retries == 0:
        return 0.0
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** (state.retries - 1))
