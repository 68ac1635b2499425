"""ControlService as a gateway has it: what makes sense for all workers at once."""

# ruff: noqa: N802 - the names are the protocol's

from __future__ import annotations

from collections import Counter
from typing import NoReturn, final

from reactant_core.errors import ModelUnavailable, Unimplemented
from reactant_core.rpc.servicer import Context, answers, seconds_remaining
from reactant_gateway.local.fanout import Answers, ask_all, combined
from reactant_gateway.local.fleet import Fleet
from reactant_proto import control_pb2 as pb
from reactant_proto import control_pb2_grpc


@final
class FleetControlServicer(control_pb2_grpc.ControlServiceServicer):
    """CompactMemory goes to every ready worker; what only one worker can answer is refused, saying so."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @answers
    async def CompactMemory(
        self, request: pb.CompactMemoryRequest, context: Context
    ) -> pb.CompactMemoryResponse:
        workers = self._fleet.ready_handles()
        if not workers:
            raise ModelUnavailable("no worker is ready", not_started=True)
        told = await ask_all(
            workers, "CompactMemory", request, seconds=seconds_remaining(context), service="control"
        )
        if not told.good:
            raise combined(told.failed, len(workers))
        return _merged(told)

    @answers
    async def ModelControlStatus(
        self, request: pb.ModelControlStatusRequest, context: Context
    ) -> pb.ModelControlStatusResponse:
        _only_a_worker("ModelControlStatus", "; GatewayControlService/GetSchedulingStatus tells of all")

    @answers
    async def SetModelPolicy(
        self, request: pb.SetModelPolicyRequest, context: Context
    ) -> pb.SetModelPolicyResponse:
        _only_a_worker("SetModelPolicy")

    @answers
    async def SetModelResidency(
        self, request: pb.SetModelResidencyRequest, context: Context
    ) -> pb.SetModelResidencyResponse:
        _only_a_worker("SetModelResidency")


def _only_a_worker(rpc: str, instead: str = "") -> NoReturn:
    raise Unimplemented(f"{rpc} is a worker's, and this is a gateway: ask the worker itself{instead}")


def _merged(told: Answers) -> pb.CompactMemoryResponse:
    good: dict[str, pb.CompactMemoryResponse] = told.good
    # Most have nothing to say of their own: said once, with how many said it.
    said = Counter(response.summary for response in good.values())
    told_by = [f"{count} worker{'s'[: count > 1]}: {text}" for text, count in said.most_common()]
    told_by += [f"{len(told.failed)} failed"] if told.failed else []
    merged = pb.CompactMemoryResponse(
        moved_bytes=sum(one.moved_bytes for one in good.values()),
        bytes_in_use_before=sum(one.bytes_in_use_before for one in good.values()),
        bytes_in_use_after=sum(one.bytes_in_use_after for one in good.values()),
        largest_free_block_before=max(one.largest_free_block_before for one in good.values()),
        largest_free_block_after=max(one.largest_free_block_after for one in good.values()),
        summary="; ".join(told_by),
    )
    for worker, response in good.items():
        merged.workers.add(worker=worker, result=response)
    for worker, error in told.failed.items():
        merged.workers.add(worker=worker, error=f"{error.code.name}: {error.message}")
    merged.workers.sort(key=lambda one: one.worker)
    return merged
