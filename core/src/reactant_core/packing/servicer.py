"""GatewayControlService: how requests are spread over the workers, looked at and retuned while it runs."""

# ruff: noqa: N802 - the names are the protocol's

from __future__ import annotations

import asyncio
from typing import Final, final

from reactant_core.bundle.errors import suggestion
from reactant_core.bundle.names import valid_model_name
from reactant_core.errors import InvalidArgument, ModelNotFound, ServingError
from reactant_core.logs import get_logger
from reactant_core.packing.messages import (
    POLICY_FIELDS,
    placement_message,
    policy_changes,
    policy_message,
    replicas_of,
    report_message,
    status_message,
)
from reactant_core.packing.steered import Steered
from reactant_core.rpc.servicer import Context, answers, seconds_remaining
from reactant_policy.placement import packing
from reactant_proto import gateway_pb2 as pb
from reactant_proto import gateway_pb2_grpc

MAX_WAIT_SECONDS: Final = 600.0
"""Longest wait for a repack that may be asked for."""

_SETTLE_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 0.1

_log = get_logger(__name__)


@final
class SchedulingServicer(gateway_pb2_grpc.GatewayControlServiceServicer):
    """Puts `steering` on the wire. Lives on its event loop."""

    def __init__(self, steering: Steered) -> None:
        self._steering = steering
        # They go on when their callers have gone.
        self._repacks: set[asyncio.Task[packing.Repack]] = set()

    @answers
    async def GetSchedulingStatus(
        self, request: pb.GetSchedulingStatusRequest, context: Context
    ) -> pb.GetSchedulingStatusResponse:
        return status_message(self._steering.status())

    @answers
    async def SetSchedulingPolicy(
        self, request: pb.SetSchedulingPolicyRequest, context: Context
    ) -> pb.SetSchedulingPolicyResponse:
        paths = request.update_mask.paths
        if not paths:
            raise InvalidArgument(f"update_mask names no field; accepted are {', '.join(POLICY_FIELDS)}")
        await self._steering.set_policy(policy_changes(request.policy, paths))
        _log.info("scheduling policy set", fields=", ".join(sorted(set(paths))))
        await self._settle(context)
        status = self._steering.status()
        return pb.SetSchedulingPolicyResponse(
            policy=policy_message(status.policy), persisted=status.persisted
        )

    @answers
    async def SetModelPlacement(
        self, request: pb.SetModelPlacementRequest, context: Context
    ) -> pb.SetModelPlacementResponse:
        if request.allow_unknown and not valid_model_name(request.model):
            raise InvalidArgument(f"model '{request.model}': no model can have this name, it names no folder")
        replicas = replicas_of(request.replicas) if request.HasField("replicas") else None
        fill_mode = request.fill_mode if request.HasField("fill_mode") else None
        fill_factor = request.fill_factor if request.HasField("fill_factor") else None
        if replicas is None and fill_mode is None and fill_factor is None:
            raise InvalidArgument(
                f"model '{request.model}': nothing to set; give replicas, fill_mode or fill_factor"
            )
        try:
            await self._steering.set_model(
                request.model,
                replicas=replicas,
                fill_mode=fill_mode,
                fill_factor=fill_factor,
                allow_unknown=request.allow_unknown,
            )
        except ModelNotFound as error:
            raise self._with_near_name(error, request.model) from None
        _log.info("placement set", model=request.model, replicas=replicas, fill=fill_mode, factor=fill_factor)
        await self._settle(context)
        status = self._steering.status()
        model = next((model for model in status.models if model.name == request.model), None)
        placement = pb.ModelPlacement(name=request.model) if model is None else placement_message(model)
        return pb.SetModelPlacementResponse(
            placement=placement, persisted=status.persisted, mode=status.policy.mode
        )

    @answers
    async def Repack(self, request: pb.RepackRequest, context: Context) -> pb.RepackResponse:
        wait = request.wait_seconds
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise InvalidArgument(f"wait_seconds is {wait:g}; accepted is 0 to {MAX_WAIT_SECONDS:g}")
        task = asyncio.get_running_loop().create_task(self._steering.repack(), name="repack")
        self._repacks.add(task)
        task.add_done_callback(self._ended)
        # A wait of 0 still takes it to where it says that it cannot be.
        done, _ = await asyncio.wait({task}, timeout=wait)
        if not done:
            return pb.RepackResponse()
        return pb.RepackResponse(done=True, report=report_message(task.result()))

    def _ended(self, task: asyncio.Task[packing.Repack]) -> None:
        self._repacks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Perhaps nobody waits for it any more.
            reason = error.message if isinstance(error, ServingError) else repr(error)
            _log.warning("repack that was asked for failed", reason=reason)

    async def _settle(self, context: Context) -> None:
        """Waits, not for long, until the models have the places that what was set leads to."""
        left = seconds_remaining(context)
        limit = _SETTLE_SECONDS if left is None else min(_SETTLE_SECONDS, left - _ANSWER_SECONDS)
        try:
            async with asyncio.timeout(max(limit, 0)):
                await self._steering.settled()
        except TimeoutError:
            pass

    def _with_near_name(self, error: ModelNotFound, name: str) -> ModelNotFound:
        if "did you mean" in error.message:
            return error
        near = suggestion(name, [model.name for model in self._steering.status().models])
        return ModelNotFound(f"{error.message}{near}")
