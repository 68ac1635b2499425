"""The file in which fixture hooks leave a line when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

VARIABLE = "FIXTURE_HOOK_LOG"


@final
@dataclass(frozen=True, slots=True)
class HookLog:
    """Lines of every hook of one worker."""

    path: Path

    @property
    def environ(self) -> dict[str, str]:
        """What tells the hooks where it is."""
        return {VARIABLE: str(self.path)}

    def lines(self) -> list[str]:
        """What hooks have noted so far, in order."""
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []

    def has(self, line: str) -> bool:
        """Whether that line is there."""
        return line in self.lines()
