"""A process to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What a child is made of.

    Attributes:
        name: in the log and to SupervisorService.
        argv: its command line.
        env: its whole environment.
        pass_fds: descriptors it inherits under the same numbers.
        hold_variable: names in its environment the descriptor of a pipe. A byte in it asks the child to stay
            when it has stopped, until end of file; None makes no pipe.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    hold_variable: str | None = None
