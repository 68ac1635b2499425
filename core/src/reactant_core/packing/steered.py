"""What this room asks of the host of the scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from reactant_core.packing.status import SchedulingStatus
from reactant_policy.placement.packing import Repack


class Steered(Protocol):
    """The scheduling of a gateway or of a fleet; `reactant_core.packing.steering.Steering` is one."""

    def status(self) -> SchedulingStatus:
        """The scheduling as it is now."""
        ...

    async def set_policy(self, changes: Mapping[str, object]) -> None:
        """Changes settings of all models, all or none; InvalidArgument names everything wrong."""
        ...

    async def set_model(
        self,
        model: str,
        *,
        replicas: int | Literal["all"] | None = None,
        fill_mode: str | None = None,
        fill_factor: float | None = None,
        allow_unknown: bool = False,
    ) -> None:
        """Changes one model's settings; ModelNotFound, or InvalidArgument that names everything wrong."""
        ...

    async def repack(self) -> Repack:
        """Packs anew and returns what came of it; FailedPrecondition where nothing is packed."""
        ...

    async def settled(self) -> None:
        """Returns once no repack is under way or asked for."""
        ...
