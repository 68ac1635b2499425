"""When a process that died is started again, and when its machine gives up.

Pure: the caller measures how long the process lived and waits out the delay that comes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

EX_CONFIG = 78
"""Exit code of a process that refused its configuration (sysexits.h)."""


@final
@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Capped exponential backoff with a limit on failures in a row.

    Attributes:
        max_restarts: restarts in a row that may fail before the node goes down; 0 allows none.
        first_delay_seconds: wait before the first restart of a row.
        factor: what each further wait is multiplied by, at least 1.
        cap_seconds: longest wait.
        good_life_seconds: a process that lived this long counts as having worked: a new row begins.

    Raises:
        ValueError: a value is out of its range; all of them are named.
    """

    max_restarts: int = 10
    first_delay_seconds: float = 0.5
    factor: float = 2.0
    cap_seconds: float = 30.0
    good_life_seconds: float = 60.0

    def __post_init__(self) -> None:
        rules = (
            (self.max_restarts >= 0, f"max_restarts is {self.max_restarts}, it must be 0 or more"),
            (
                0 <= self.first_delay_seconds < math.inf,
                f"first_delay_seconds is {self.first_delay_seconds}, it must be finite and 0 or more",
            ),
            (1 <= self.factor < math.inf, f"factor is {self.factor}, it must be finite and 1 or more"),
            (
                self.first_delay_seconds <= self.cap_seconds < math.inf,
                f"cap_seconds is {self.cap_seconds}, it must be finite and at least first_delay_seconds",
            ),
            (
                self.good_life_seconds >= 0,
                f"good_life_seconds is {self.good_life_seconds}, it must be 0 or more",
            ),
        )
        faults = [fault for holds, fault in rules if not holds]
        if faults:
            raise ValueError("; ".join(faults))

    def delay_seconds(self, failures: int) -> float:
        """Wait before the restart that follows the `failures`-th failure in a row.

        min(cap, first x factor^(failures - 1)), the usual truncated exponential backoff.
        """
        try:
            delay = self.first_delay_seconds * self.factor ** (failures - 1)
        except OverflowError:
            delay = math.inf if self.first_delay_seconds else 0.0
        return min(self.cap_seconds, delay)


@final
@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again.

    Attributes:
        delay_seconds: after this wait.
        failures: in a row, this one included; what the next exit is judged with.
        remark: what people should know beside, as a clause for the log; mostly empty.
    """

    delay_seconds: float
    failures: int
    remark: str = ""


@final
@dataclass(frozen=True, slots=True)
class GiveUp:
    """Take the node down.

    Attributes:
        reason: why, as a clause for the log.
        failures: failures in a row, this one included.
        configuration_refused: it ended with `EX_CONFIG`; whoever starts the node should not retry either.
    """

    reason: str
    failures: int
    configuration_refused: bool = False


def after_exit(
    policy: RestartPolicy, *, failures: int, lived_seconds: float, exit_code: int, first_start: bool
) -> Restart | GiveUp:
    """Judges an exit nobody asked for; exit code 0 is one too.

    `EX_CONFIG` is final at the first start alone. A process that started with this configuration before meets
    something that can pass: a port taken meanwhile, a device or a mount that is away.

    Args:
        policy: the numbers.
        failures: failures in a row before this exit.
        lived_seconds: time between the start of the process and its exit.
        exit_code: as the operating system gave it; negative is minus the signal number.
        first_start: the node has not started this process before.
    """
    now_failed = (0 if lived_seconds >= policy.good_life_seconds else failures) + 1
    refused = exit_code == EX_CONFIG
    if refused and first_start:
        return GiveUp("it refused its configuration, starting it again cannot help", now_failed, True)
    remark = "it refused its configuration, but not at its first start" if refused else ""
    if now_failed > policy.max_restarts:
        return GiveUp(
            f"it failed {now_failed} times in a row and {policy.max_restarts} restarts are allowed"
            f"{'; ' if remark else ''}{remark}",
            now_failed,
        )
    return Restart(policy.delay_seconds(now_failed), now_failed, remark)
