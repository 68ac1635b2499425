"""`reactant config`: the configuration in force, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from reactant_cli.options import AsJson, show, show_json
from reactant_core.config import ConfigError, load_node_config, load_worker_config

EX_CONFIG = 78
"""Exit code for a configuration that cannot be used (sysexits.h), the same as the services'."""

_DEFAULT = "default"


def config(
    *,
    node_file: Annotated[
        Path | None,
        typer.Option("--node-file", metavar="FILE", help="Node file, instead of REACTANT_NODE_FILE's."),
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
    try:
        node = load_node_config(os.environ, node_file=node_file)
        one = load_worker_config(os.environ, node_file=node_file, worker=worker)
    except ConfigError as error:
        typer.echo(f"reactant: {error}", err=True)
        raise typer.Exit(EX_CONFIG) from None
    parts = {
        # What stands under `global:` is shown as the worker sees it.
        "node": [row for row in node.entries() if not row[0].startswith("global.")],
        one.value.name: list(one.entries()),
    }
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
    show("Under a supervisor a lone worker listens on public_port and public_metrics_port.")
