"""What this room asks of the discovery of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reactant_gateway.workers.handle import WorkerHandle


class Fleet(Protocol):
    """All workers; `reactant_gateway.workers.discovery.Discovery` is one."""

    @property
    def handles(self) -> Sequence[WorkerHandle]:
        """Every worker, also one that is out of reach."""
        ...

    def ready_handles(self) -> Sequence[WorkerHandle]:
        """The workers that get requests now."""
        ...

    async def refresh(self, *, force: bool = False) -> None:
        """Asks every worker what it serves and puts the table of that in force.

        At most once a second, unless forced.
        """
        ...
