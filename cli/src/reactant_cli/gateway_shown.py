"""A gateway's scheduling as tables that a person can read, also with a thousand models."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from reactant_cli.options import console, show
from reactant_cli.plain import bytes_text
from reactant_cli.suggest import listed
from reactant_proto import gateway_pb2 as pb

PACKED = "lpt_packing"

_MOST_MODELS = 20
_MOST_WORKERS = 32
_MOST_MOVES = 10

_TRIGGERS = {
    "start": "before anything was measured",
    "first": "enough traffic was measured for the first time",
    "compute": "the workers had computed for long enough",
    "membership": "workers or models had come or gone",
    "request": "it was asked for, or a setting was changed",
}
_REASONS = {
    "lost": "a worker that it was on cannot have it any more",
    "replicas": "more or fewer replicas are wanted",
    "balance": "evens the load, or relieves a full worker",
}


def show_status(answer: pb.GetSchedulingStatusResponse, url: str, *, every: bool) -> None:
    """Prints how `url` schedules; the busiest models only, unless `every`."""
    packed = answer.policy.mode == PACKED
    about = Table("", url, show_edge=False)
    for row in _about(answer):
        about.add_row(*row)
    show(about)
    _show_workers(answer.workers, packed=packed, every=every)
    if not answer.models:
        show("no worker has a model")
        return
    models = sorted(answer.models, key=lambda model: (-model.demand, -model.requests_in_flight, model.name))
    kept = models if every else models[:_MOST_MODELS]
    show(_models_table(kept, answer))
    if rest := models[len(kept) :]:
        demand = sum(model.demand for model in rest)
        whole = sum(model.demand for model in models)
        share = f", {_percent(demand / whole)} of the load" if whole else ""
        show(f"and {len(rest)} more models{share}; --all shows them")
    if answer.HasField("last_repack") and answer.last_repack.moves:
        show("moved by the last repack:")
        _show_moves(answer.last_repack.moves, every=every)


def show_report(report: pb.RepackReport, *, every: bool) -> None:
    """Prints what came of a repack; the first moves only, unless `every`."""
    show(f"repacked: {_came_of(report)}")
    for warning in report.warnings:
        show(f"warning: {warning}")
    if report.moves:
        _show_moves(report.moves, every=every)


def replicas_text(replicas: pb.Replicas) -> str:
    """`all` or the count."""
    return "all" if replicas.all else str(replicas.count)


def _about(answer: pb.GetSchedulingStatusResponse) -> list[tuple[str, str]]:
    policy = answer.policy
    rows = [("mode", policy.mode)]
    if policy.mode != PACKED:
        if policy.mode == "least_outstanding":
            rows.append(("work", policy.work_basis))
        return [*rows, *(("warning", text) for text in answer.warnings)]
    rows.append(
        (
            "policy",
            f"replicas {replicas_text(policy.default_replicas)}, fill {policy.routing_fill_mode} × "
            f"{policy.routing_fill_factor:g}, {policy.routing_policy}, hysteresis {policy.hysteresis:g}, "
            f"compaction {policy.compaction_mode}",
        )
    )
    if answer.HasField("last_repack"):
        report = answer.last_repack
        ago = _seconds(answer.last_repack_seconds_ago)
        why = _TRIGGERS.get(report.trigger, "")
        rows.append(("last repack", f"{ago} ago, {report.trigger}{why and f': {why}'}"))
        rows.append(("", _came_of(report)))
    if answer.repacks:
        counts = ", ".join(f"{count} {trigger}" for trigger, count in sorted(answer.repacks.items()) if count)
        rows.append(("repacks", counts or "none"))
    if not answer.placed:
        rows.append(("placement", "none yet: the workers are not all there"))
    elif answer.HasField("compute_seconds_until_repack"):
        left = max(answer.compute_seconds_until_repack, 0)
        rows.append(("next repack", f"after {left:.1f} s more of device time"))
    return [*rows, *(("warning", text) for text in answer.warnings)]


def _show_workers(workers: Sequence[pb.WorkerLoad], *, packed: bool, every: bool) -> None:
    if every or len(workers) <= _MOST_WORKERS:
        show(_workers(workers, packed=packed))
        return
    ordered = sorted(workers, key=lambda one: (one.ready, -one.compute_share, -one.requests_in_flight))
    kept, rest = ordered[:_MOST_WORKERS], ordered[_MOST_WORKERS:]
    show(_workers(kept, packed=packed))
    load = f", each loaded {_percent(rest[0].compute_share)} or less" if packed else ""
    show(f"and {len(rest)} more workers{load}; --all shows them")


def _workers(workers: Sequence[pb.WorkerLoad], *, packed: bool) -> Table:
    loads = ("load", "weights") if packed else ()
    table = Table("worker", "ready", "discipline", "models", *loads, "in flight")
    for worker in workers:
        shares = (_percent(worker.compute_share), _memory(worker)) if packed else ()
        table.add_row(
            worker.name,
            "yes" if worker.ready else "no",
            worker.discipline,
            str(worker.homes),
            *shares,
            str(worker.requests_in_flight),
        )
    return table


def _models_table(models: Sequence[pb.ModelPlacement], answer: pb.GetSchedulingStatusResponse) -> Table:
    """With a column for each worker where no cell has to be broken for that."""
    # What certainly does not fit need not be made to find that out.
    if sum(len(worker.name) + 3 for worker in answer.workers) < console().width:
        table = _models(models, answer, by_worker=True)
        if _fits(table):
            return table
    return _models(models, answer, by_worker=False)


def _models(
    models: Sequence[pb.ModelPlacement], answer: pb.GetSchedulingStatusResponse, *, by_worker: bool
) -> Table:
    """With a column for each worker, or one that lists the workers of a model."""
    packed = answer.policy.mode == PACKED
    names = [worker.name for worker in answer.workers]
    settings = ("load", "replicas", "fill") if packed else ()
    table = Table("model", *settings, "ms/item", "weights", *(names if by_worker else ["on"]), "in flight")
    for model in models:
        wanted = (_percent(model.demand), _wanted(model), f"{model.fill_mode} {model.fill_quantum:g}")
        # Of a worker's time where that is measured.
        share = _percent(model.demand / max(len(model.homes), 1)) if packed else "ready"
        cells = [share if name in model.homes else "" for name in names]
        table.add_row(
            model.name,
            *(wanted if packed else ()),
            f"{model.seconds_per_item * 1e3:.3g}" if model.HasField("seconds_per_item") else "",
            bytes_text(model.weight_bytes),
            *(cells if by_worker else [listed(model.homes, 4)]),
            str(model.requests_in_flight),
        )
    return table


def _fits(table: Table) -> bool:
    """Whether no cell has to be broken for the console."""
    out = console()
    return out.measure(table, options=out.options.update(max_width=100_000)).maximum <= out.width


def _wanted(model: pb.ModelPlacement) -> str:
    wanted = replicas_text(model.replicas)
    if model.replicas.all or len(model.homes) >= model.replicas.count:
        return wanted
    return f"{wanted} ({len(model.homes)} placed)"


def _show_moves(moves: Sequence[pb.Move], *, every: bool) -> None:
    ordered = sorted(moves, key=lambda move: (-move.bytes, move.model))
    kept = ordered if every else ordered[:_MOST_MOVES]
    table = Table("model", "from", "to", "weights", "why")
    for move in kept:
        table.add_row(
            move.model,
            listed(move.gone, 4),
            listed(move.new, 4),
            bytes_text(move.bytes),
            _REASONS.get(move.reason, move.reason),
        )
    show(table)
    if rest := len(ordered) - len(kept):
        show(f"and {rest} more; --all shows them")


def _came_of(report: pb.RepackReport) -> str:
    moved = f", {bytes_text(report.bytes_moved)}" if report.bytes_moved else ""
    held = f", {report.held} held by hysteresis" if report.held else ""
    load = "no load yet"
    if report.imbalance_after:
        imbalance = f"{report.imbalance_before:.2f} → {report.imbalance_after:.2f}"
        load = f"best gain {_percent(report.best_gain)}, imbalance {imbalance}"
    return f"{report.placed} models placed, {len(report.moves)} moved{moved}{held}; {load}"


def _memory(worker: pb.WorkerLoad) -> str:
    held = bytes_text(worker.weight_bytes) or "none"
    if not worker.weight_budget_bytes:
        return held
    return f"{held} of {bytes_text(worker.weight_budget_bytes)} ({_percent(worker.memory_share)})"


def _percent(share: float) -> str:
    percent = share * 100
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.1f} %"


def _seconds(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
