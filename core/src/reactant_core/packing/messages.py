"""A gateway's scheduling as messages, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing.status import ModelStatus, SchedulingStatus, WorkerStatus
from reactant_policy.placement.packing import Repack
from reactant_proto import gateway_pb2 as pb

POLICY_FIELDS: Final = tuple(pb.SchedulingPolicy.DESCRIPTOR.fields_by_name)
"""Names of the fields of a SchedulingPolicy, each that of a setting in `SchedulingConfig`."""

_REPLICAS: Final = "default_replicas"


def status_message(status: SchedulingStatus) -> pb.GetSchedulingStatusResponse:
    """Everything that `status` says."""
    message = pb.GetSchedulingStatusResponse(
        policy=policy_message(status.policy),
        workers=[_worker_message(worker) for worker in status.workers],
        models=[placement_message(model) for model in status.models],
        placed=status.placed,
        last_repack_seconds_ago=status.last_seconds_ago,
        repacks=status.repacks,
        compute_seconds_until_repack=status.next_compute_seconds,
        warnings=status.warnings,
        persisted=status.persisted,
    )
    if status.last is not None:
        message.last_repack.CopyFrom(report_message(status.last))
    return message


def policy_message(policy: SchedulingConfig) -> pb.SchedulingPolicy:
    """The settings for all models."""
    values: dict[str, Any] = {name: getattr(policy, name) for name in POLICY_FIELDS}
    return pb.SchedulingPolicy(**values | {_REPLICAS: _replicas_message(policy.default_replicas)})


def policy_changes(policy: pb.SchedulingPolicy, paths: Iterable[str]) -> dict[str, object]:
    """The settings that `paths` name, by name, as they stand in `policy`; None for what is no field.

    Neither names nor values are judged here.
    """
    changes: dict[str, object] = {}
    for path in paths:
        value = getattr(policy, path) if path in POLICY_FIELDS else None
        changes[path] = replicas_of(value) if isinstance(value, pb.Replicas) else value
    return changes


def replicas_of(message: pb.Replicas) -> int | Literal["all"]:
    """A count or `all`; 0, which no count is, for a message that says neither."""
    return "all" if message.all else message.count


def placement_message(model: ModelStatus) -> pb.ModelPlacement:
    """One model."""
    return pb.ModelPlacement(
        name=model.name,
        replicas=_replicas_message("all" if model.replicas is None else model.replicas),
        homes=model.homes,
        eligible=model.eligible,
        demand=model.demand,
        seconds_per_item=model.seconds_per_item,
        weight_bytes=model.weight_bytes,
        fill_mode=model.fill_mode,
        fill_factor=model.fill_factor,
        fill_quantum=model.quantum,
        requests_in_flight=model.in_flight,
        own_settings=model.own,
    )


def report_message(repack: Repack) -> pb.RepackReport:
    """What came of a repack."""
    plan = repack.plan
    return pb.RepackReport(
        trigger=repack.trigger,
        placed=plan.placed,
        held=plan.held,
        best_gain=plan.best_gain,
        compute_seconds=repack.compute_seconds,
        wall_seconds=repack.wall_seconds,
        bytes_moved=plan.bytes_moved,
        imbalance_before=plan.imbalance_before,
        imbalance_after=plan.imbalance_after,
        moves=[
            pb.Move(model=move.model, gone=move.gone, new=move.new, bytes=move.bytes, reason=move.reason)
            for move in plan.moves
        ],
        warnings=plan.warnings,
    )


def _worker_message(worker: WorkerStatus) -> pb.WorkerLoad:
    return pb.WorkerLoad(
        name=worker.name,
        ready=worker.ready,
        discipline=worker.discipline,
        homes=worker.homes,
        compute_share=worker.compute,
        weight_bytes=worker.memory_bytes,
        weight_budget_bytes=worker.memory_budget_bytes,
        memory_share=worker.memory,
        requests_in_flight=worker.in_flight,
    )


def _replicas_message(replicas: int | Literal["all"]) -> pb.Replicas:
    return pb.Replicas(all=True) if replicas == "all" else pb.Replicas(count=replicas)
