"""The `reactant` command."""

from __future__ import annotations

import typer

from reactant_cli.config import config
from reactant_cli.infer import infer
from reactant_cli.models import models
from reactant_cli.status import status

app = typer.Typer(
    name="reactant",
    help="Talks to ReactantServer, and to any other KServe V2 server, from the command line.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (infer, models, status, config):
    app.command()(command)


def main() -> None:
    """Entry point of the console script; exit codes: 0 success, 1 failure, 2 wrong use."""
    app()
