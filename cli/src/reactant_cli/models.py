"""`reactant models`: what a server has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from reactant_cli.connection import ModelEntry, ModelInterface, Server, connect
from reactant_cli.failure import CommandFailure, one_line_failures
from reactant_cli.options import AsJson, Timeout, Url, show, show_json
from reactant_cli.values import TensorDecl
from reactant_core.errors import ServingError


@one_line_failures
def models(*, url: Url = "localhost:8001", timeout: Timeout = 10.0, as_json: AsJson = False) -> None:
    """Lists the models of a server: state, inputs and outputs."""
    with connect(url, timeout) as server:
        rows = [(entry, _interface(server, entry)) for entry in server.index()]
    if as_json:
        show_json([_as_json(entry, interface) for entry, interface in rows])
        return
    table = Table("model", "state", "inputs", "outputs", "reason")
    for entry, interface in rows:
        inputs, outputs = (interface.inputs, interface.outputs) if interface else ((), ())
        table.add_row(entry.name, entry.state, _lines(inputs), _lines(outputs), entry.reason)
    show(table if rows else f"{url} serves no models")


def _interface(server: Server, entry: ModelEntry) -> ModelInterface | None:
    """None for a model that is not served, or no longer: it may go between two calls."""
    if entry.state != "READY":
        return None
    try:
        return server.interface(entry.name)
    except (ServingError, CommandFailure):
        return None


def _lines(tensors: tuple[TensorDecl, ...]) -> str:
    return "\n".join(f"{tensor.name} {tensor}" for tensor in tensors)


def _as_json(entry: ModelEntry, interface: ModelInterface | None) -> dict[str, Any]:
    document: dict[str, Any] = asdict(entry)
    for key in ("inputs", "outputs"):
        tensors: tuple[TensorDecl, ...] = getattr(interface, key) if interface else ()
        document[key] = [
            {"name": t.name, "datatype": t.dtype.kserve, "shape": list(t.shape)} for t in tensors
        ]
    return document
