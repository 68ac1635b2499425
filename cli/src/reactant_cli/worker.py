"""`reactant worker`: what one worker does with its models, and how it shares its device."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, final

import typer
from rich.table import Table

from reactant_cli.control import WorkerControl, connect_worker
from reactant_cli.failure import CommandFailure, one_line_failures
from reactant_cli.options import AsJson, Timeout, Url, show, show_json
from reactant_cli.plain import bytes_text, plain
from reactant_cli.shown import shown
from reactant_proto import control_pb2

Model = Annotated[str, typer.Argument(help="Name of the model.")]

worker = typer.Typer(
    name="worker",
    help="Looks at one worker and steers it; --url is the worker's own address. Of these only compact also "
    "takes a gateway's.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@final
class Residency(StrEnum):
    """Floors that a model's weights never fall below."""

    UNPINNED = "unpinned"
    SYSTEM = "system"
    DEVICE = "device"


@worker.command("status")
@one_line_failures
def status(*, url: Url = "localhost:8001", timeout: Timeout = 10.0, as_json: AsJson = False) -> None:
    """Shows how the worker schedules, and what each of its models weighs, waits for and has run."""
    with connect_worker(url, timeout) as control:
        answer = control.status()
    if as_json:
        show_json(plain(answer))
        return
    about = Table("", answer.worker or url, show_edge=False)
    about.add_row("model control mode", answer.control_mode)
    about.add_row("discipline", answer.discipline)
    about.add_row("weight budget", bytes_text(answer.weight_budget_bytes) or "no limit")
    about.add_row("requests in flight", f"at most {answer.max_concurrent_requests or 'any number'}")
    if answer.gpu:
        about.add_row("gpu", answer.gpu)
    show(about)
    show(_models(answer) if answer.models else f"{url} has no models")


@worker.command("set-weight")
@one_line_failures
def set_weight(
    model: Model,
    weight: Annotated[float, typer.Argument(help="Above 0, at most 1e6; a model has 1 unless configured.")],
    *,
    url: Url = "localhost:8001",
    timeout: Timeout = 10.0,
) -> None:
    """Sets MODEL's share of device time relative to the other models, until the worker's restart."""
    _set(model, url, timeout, f"weight {weight:g}", lambda control: control.set_weight(model, weight))


@worker.command("set-residency")
@one_line_failures
def set_residency(
    model: Model,
    residency: Annotated[Residency, typer.Argument(help="How far down its weights may go.")],
    *,
    url: Url = "localhost:8001",
    timeout: Timeout = 10.0,
) -> None:
    """Sets the floor of MODEL's weights until the worker's restart; in explicit mode only."""
    floor = residency.value
    _set(model, url, timeout, f"residency {floor}", lambda control: control.set_residency(model, floor))


@worker.command("compact")
@one_line_failures
def compact(*, url: Url = "localhost:8001", timeout: Timeout = 60.0, as_json: AsJson = False) -> None:
    """Puts the weights on the device together, so that its free memory is in one piece. At a gateway's --url:
    on every worker; exit code 1 when one of them failed."""
    with connect_worker(url, timeout) as control:
        answer = control.compact()
    failed = [f"{one.worker}: {one.error}" for one in answer.workers if one.error]
    if as_json:
        show_json(plain(answer))
    else:
        _show_compaction(answer)
    if failed:
        raise CommandFailure(f"{len(failed)} of {len(answer.workers)} workers failed: {'; '.join(failed)}")


def _set(model: str, url: str, timeout: float, what: str, change: Callable[[WorkerControl], None]) -> None:
    with connect_worker(url, timeout) as control:
        change(control)
    show(f"{shown(model)} has {what} at {url}")


def _show_compaction(answer: control_pb2.CompactMemoryResponse) -> None:
    show(answer.summary)
    if answer.bytes_in_use_before:
        table = Table("", "before", "after", show_edge=False)
        table.add_row("in use", bytes_text(answer.bytes_in_use_before), bytes_text(answer.bytes_in_use_after))
        largest = bytes_text(answer.largest_free_block_before), bytes_text(answer.largest_free_block_after)
        table.add_row("largest free block", *largest)
        show(table)


def _models(answer: control_pb2.ModelControlStatusResponse) -> Table:
    table = Table(
        *("model", "state", "weight", "floor", "weights", "waiting"),
        *("served", "rows/run", "device s", "batch", "remarks"),
    )
    for model in sorted(answer.models, key=lambda model: model.name):
        table.add_row(
            model.name,
            model.state,
            f"{model.weight:g}" if model.weight else "",
            model.residency,
            _weights(model),
            str(model.queue_depth),
            str(model.requests_served),
            f"{model.rows_served / model.dispatches:.1f}" if model.dispatches else "",
            f"{model.compute_seconds:.2f}",
            _batch(model),
            model.reason or (f"calls {', '.join(model.calls)}" if model.calls else ""),
        )
    return table


def _weights(model: control_pb2.ModelControl) -> str:
    tiers = (("host", model.host_resident), ("device", model.device_resident))
    places = " and ".join(place for place, there in tiers if there)
    return f"{bytes_text(model.weight_bytes)}, {places}" if model.weight_bytes else ""


def _batch(model: control_pb2.ModelControl) -> str:
    if not model.max_batch_size:
        return ""
    delay = f", waits {model.max_queue_delay_ms:g} ms" if model.max_queue_delay_ms else ""
    return f"up to {model.max_batch_size}{delay}"
