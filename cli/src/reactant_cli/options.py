"""Options and output that the commands share."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

Url = Annotated[str, typer.Option("--url", "-u", metavar="HOST:PORT", help="The server's gRPC address.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Longest wait for an answer, seconds.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console() -> Console:
    """A console on the present standard output, wide enough for a table when nobody is looking."""
    wide = None if sys.stdout.isatty() else 160
    return Console(file=sys.stdout, width=wide, markup=False, highlight=False)


def show(renderable: RenderableType) -> None:
    """Prints a Rich table or text."""
    console().print(renderable)


def show_json(document: Any) -> None:
    """Prints `document` as indented JSON, exactly as it would be piped on."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
