"""The `reactant` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from reactant_cli.config import config
from reactant_cli.failure import USAGE, say_failure
from reactant_cli.gateway import gateway
from reactant_cli.infer import infer
from reactant_cli.models import models
from reactant_cli.shown import shown
from reactant_cli.simulate import simulate
from reactant_cli.status import status
from reactant_cli.worker import worker

app = typer.Typer(
    name="reactant",
    help="Talks to ReactantServer, and to any other KServe V2 server, from the command line.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (infer, models, status, config, simulate):
    app.command()(command)
app.add_typer(worker)
app.add_typer(gateway)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script; exit codes: 0 success, 1 failure, 2 wrong use."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for position, argument in enumerate(arguments, 1):
        # What is not UTF-8 stands in `sys.argv` as lone surrogates, which nothing below can send or print.
        if any("\ud800" <= char <= "\udfff" for char in argument):
            say_failure(
                f"argument {position} is not UTF-8 text: {shown(argument)}; "
                'bytes go in a JSON value as {"b64": "…"}'
            )
            sys.exit(USAGE)
    app(arguments)
