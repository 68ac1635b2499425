"""`reactant status`: is the server there, is it ready, and if not, how far is it?"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import progress as bars
from rich.table import Table

from reactant_cli.connection import connect
from reactant_cli.failure import FAILURE, CommandFailure, one_line_failures
from reactant_cli.options import AsJson, Timeout, Url, console, show, show_json
from reactant_cli.readyz import ask, split_address
from reactant_core.errors import ServingError
from reactant_core.progress import Progress

_ASK_EVERY_SECONDS = 0.25


@one_line_failures
def status(
    *,
    url: Url = "localhost:8001",
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="The server's HTTP address, for the progress while models compile. "
            "Default: the host of --url and port 8002.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Wait, showing the progress, until it is ready.")
    ] = False,
    timeout: Timeout = 5.0,
    as_json: AsJson = False,
) -> None:
    """Tells whether a server is live and ready; exit code 0 when it is ready, 1 otherwise."""
    host, port = split_address(http, "--http") if http else (split_address(url, "--url")[0], 8002)
    if watch:
        _wait_until_ready(host, port, url, timeout, as_json=as_json)
    report = _report(url, ask(host, port, timeout), timeout)
    if as_json:
        show_json(report)
    else:
        show(_table(report))
    if not report["ready"]:
        raise typer.Exit(FAILURE)


def _report(url: str, progress: Progress | None, timeout: float) -> dict[str, Any]:
    with connect(url, timeout) as server:
        about = server.metadata()
        index = server.index()
        ready = server.ready()
    return {
        "url": url,
        "live": True,
        "ready": ready,
        "server": {
            "name": about.name,
            "version": about.version,
            "extensions": list(about.extensions),
        },
        "models": dict(sorted(Counter(entry.state for entry in index).items())),
        "not_served": {entry.name: entry.reason for entry in index if entry.state != "READY"},
        "progress": None if progress is None else asdict(progress),
    }


def _table(report: dict[str, Any]) -> Table:
    table = Table("", report["url"], show_edge=False)
    about = report["server"]
    table.add_row("server", f"{about['name']} {about['version']}".strip())
    table.add_row("ready", "yes" if report["ready"] else "no")
    if report["progress"] is not None:
        table.add_row("state", _line(Progress(**report["progress"])))
    models = ", ".join(f"{count} {state}" for state, count in report["models"].items())
    table.add_row("models", models or "none")
    for name, reason in report["not_served"].items():
        table.add_row("", f"{name}: {reason or 'no reason given'}")
    table.add_row("extensions", ", ".join(about["extensions"]) or "none")
    return table


def _wait_until_ready(host: str, port: int, url: str, timeout: float, *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        _follow(host, port, url, timeout, _json_line if as_json else _text_line)
        return
    with bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        console=console(),
        transient=True,
    ) as display:
        task = display.add_task(f"waiting for {url}", total=None)
        while (now := _ask_either(host, port, url, timeout)) is None or not now.ready:
            if now is not None:
                display.update(
                    task,
                    description=_line(now),
                    completed=now.programs.get("done", 0),
                    total=now.programs.get("total") or None,
                )
            time.sleep(_ASK_EVERY_SECONDS)


def _follow(
    host: str, port: int, url: str, timeout: float, line_of: Callable[[Progress | None], str]
) -> None:
    """A line whenever it would be another one than before."""
    said = None
    while True:
        now = _ask_either(host, port, url, timeout)
        if (line := line_of(now)) != said:
            typer.echo(line)
            said = line
        if now is not None and now.ready:
            return
        time.sleep(_ASK_EVERY_SECONDS)


def _line(now: Progress) -> str:
    return now.summary() + now.time_left()


def _json_line(now: Progress | None) -> str:
    return json.dumps(None if now is None else asdict(now), ensure_ascii=False)


def _text_line(now: Progress | None) -> str:
    return "waiting for the server" if now is None else _line(now)


def _ask_either(host: str, port: int, url: str, timeout: float) -> Progress | None:
    """By HTTP, or where that port is not reachable by gRPC, which knows only ready or not."""
    progress = ask(host, port, timeout)
    if progress is not None:
        return progress
    try:
        with connect(url, timeout) as server:
            return Progress(server.ready())
    except (CommandFailure, ServingError):
        return None
