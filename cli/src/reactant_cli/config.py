"""`reactant config`: the configuration in force, and where each value comes from."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, final

import typer
from rich.table import Table

from reactant_cli.options import AsJson, show, show_json
from reactant_core.config import (
    ConfigError,
    load_gateway_config,
    load_node_config,
    load_worker_config,
)

EX_CONFIG = 78
"""Exit code for a configuration that cannot be used (sysexits.h), the same as the services'."""

_DEFAULT = "default"

Rows = list[tuple[str, str, str]]
"""Key, value and source of each value."""


@final
class Subject(StrEnum):
    """Whose configuration to show."""

    NODE = "node"
    GATEWAY = "gateway"


def config(
    subject: Annotated[
        Subject, typer.Argument(help="Of the node with one of its workers, or of a gateway.")
    ] = Subject.NODE,
    *,
    node_file: Annotated[
        Path | None,
        typer.Option("--node-file", metavar="FILE", help="Node file, instead of REACTANT_NODE_FILE's."),
    ] = None,
    gateway_file: Annotated[
        Path | None,
        typer.Option(
            "--gateway-file", metavar="FILE", help="Gateway file, instead of REACTANT_GATEWAY_FILE's."
        ),
    ] = None,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="NAME", help="Which worker; the first when left out.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only the values that are not built-in defaults.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prints the configuration in force here, each value with its source; exit code 78 if it is faulty."""
    for_gateway = subject is Subject.GATEWAY
    misplaced = {
        "--gateway-file": gateway_file is not None and not for_gateway,
        "--node-file": node_file is not None and for_gateway,
        "--worker": worker is not None and for_gateway,
    }
    for option, given in misplaced.items():
        if given:
            raise typer.BadParameter(f"has no meaning for `reactant config {subject}`", param_hint=option)
    try:
        parts, remark = _gateway(gateway_file) if for_gateway else _node(node_file, worker)
    except ConfigError as error:
        typer.echo(f"reactant: {error}", err=True)
        raise typer.Exit(EX_CONFIG) from None
    _print(parts, remark, changed=changed, as_json=as_json)


def _node(node_file: Path | None, worker: str | None) -> tuple[dict[str, Rows], str]:
    node = load_node_config(os.environ, node_file=node_file)
    one = load_worker_config(os.environ, node_file=node_file, worker=worker)
    parts = {
        # What stands under `global:` is shown as the worker sees it.
        "node": [row for row in node.entries() if not row[0].startswith("global.")],
        one.value.name: list(one.entries()),
    }
    return parts, "Under a supervisor a lone worker listens on public_port and public_metrics_port."


def _gateway(gateway_file: Path | None) -> tuple[dict[str, Rows], str]:
    gateway = load_gateway_config(os.environ, gateway_file=gateway_file)
    for note in gateway.notes:
        typer.echo(f"reactant: {note}", err=True)
    remark = "A supervisor gives its own gateway the node's ports, message limits and workers."
    return {"gateway": list(gateway.entries())}, remark


def _print(parts: dict[str, Rows], remark: str, *, changed: bool, as_json: bool) -> None:
    if changed:
        parts = {part: [row for row in rows if row[2] != _DEFAULT] for part, rows in parts.items()}
    if as_json:
        show_json(
            {
                part: {key: {"value": value, "source": source} for key, value, source in rows}
                for part, rows in parts.items()
            }
        )
        return
    if not any(parts.values()):
        show("All values are built-in defaults.")
        return
    for part, rows in parts.items():
        if not rows:
            continue
        table = Table("key", "value", "source", title=part, title_justify="left")
        for row in rows:
            table.add_row(*row)
        show(table)
    show(remark)
