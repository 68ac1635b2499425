"""What operators look at and change while the gateway runs. GatewayControlService calls this, nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

from reactant_core.bundle.errors import suggestion
from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.errors import FailedPrecondition, ModelNotFound
from reactant_core.packing.board import Board
from reactant_core.packing.catalogue import unfit
from reactant_core.packing.overlay import Overlay
from reactant_core.packing.packer import LPT_PACKING, Packer
from reactant_core.packing.report import report
from reactant_core.packing.status import ModelStatus, SchedulingStatus, WorkerStatus
from reactant_policy.placement.packing import Repack

__all__ = ["ModelStatus", "SchedulingStatus", "Steering", "WorkerStatus"]


@final
class Steering:
    """Every method runs on the event loop.

    Changes last until the process ends, or until the configuration, read anew, changes the same key.
    """

    def __init__(self, config: SchedulingConfig, packer: Packer, board: Board) -> None:
        """Takes over a packer that follows `config`."""
        self._overlay = Overlay(config)
        self._packer = packer
        self._board = board

    def follow(self, config: SchedulingConfig) -> tuple[str, ...]:
        """Takes over a configuration read anew; gives the dotted keys of changes that it replaced."""
        replaced = self._overlay.rebase(config)
        self._packer.follow(self._overlay.value)
        return replaced

    def status(self) -> SchedulingStatus:
        """The scheduling as it is now."""
        return report(self._packer, self._board)

    async def set_policy(self, changes: Mapping[str, object]) -> None:
        """Changes settings of all models, by the field names of `SchedulingConfig` but `models`.

        Raises:
            InvalidArgument: a name that is none, or a value that is not accepted; every one is named and
                nothing was changed. Likewise where there is nothing to change.
            FailedPrecondition: `lpt_packing` while a worker is on a discipline that it cannot work with.
        """
        self._overlay.check_policy(changes)
        if changes.get("mode") == LPT_PACKING:
            self.require_fit()
        self._overlay.set_policy(changes)
        self._packer.follow(self._overlay.value)

    def require_fit(self) -> None:
        """Raises FailedPrecondition naming the workers whose discipline `lpt_packing` cannot work with."""
        wrong = unfit(self._board.table.workers.values())
        if wrong and self._packer.planner is None:
            raise FailedPrecondition("; ".join(wrong))

    async def set_model(
        self,
        model: str,
        *,
        replicas: int | Literal["all"] | None = None,
        fill_mode: str | None = None,
        fill_factor: float | None = None,
        allow_unknown: bool = False,
    ) -> None:
        """Changes a model's own settings; what is None stays as it is.

        Args:
            model: its name.
            replicas: workers it is placed on.
            fill_mode: run, spread or inflight.
            fill_factor: of the quantum.
            allow_unknown: keep the settings for a model that no worker has yet.

        Raises:
            ModelNotFound: no worker has the model, and `allow_unknown` is not set.
            InvalidArgument: a value that is not accepted, all of them named, or nothing to change; nothing
                was changed.
        """
        routes = self._board.table.routes
        if model not in routes and not allow_unknown:
            raise ModelNotFound(f"no worker has a model '{model}'{suggestion(model, routes)}")
        given = {"replicas": replicas, "fill_mode": fill_mode, "fill_factor": fill_factor}
        self._overlay.set_model(model, {key: value for key, value in given.items() if value is not None})
        self._packer.follow(self._overlay.value)

    async def repack(self) -> Repack:
        """Plans anew with what is known now, and returns what came of it once it is in force.

        Raises:
            FailedPrecondition: the mode is not `lpt_packing`, or there is nothing to place on yet.
        """
        return await self._packer.repack()

    async def settled(self) -> None:
        """Returns once no repack is under way or asked for."""
        await self._packer.settled()
