"""What is wrong with a configuration, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong value or unknown key.

    Attributes:
        key: dotted key or environment variable.
        problem: what was given and what is accepted, as a phrase.
        source: where it stands: `file:line` or an environment variable.
        suggestion: the nearest known name, for a name that is not known.
    """

    key: str
    problem: str
    source: str
    suggestion: str | None = None

    def __str__(self) -> str:
        where = "" if self.source == self.key else f" ({self.source})"
        hint = "" if self.suggestion is None else f"; did you mean {self.suggestion}?"
        return f"{self.key}{where}: {self.problem}{hint}"


@final
class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        faults: all that was found, in the order file then environment.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__("\n  ".join([f"{count} in the configuration:", *map(str, self.faults)]))
