"""How a command fails: one line on standard error that says what to do, and an exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, final

import typer

from reactant_core.errors import ServingError

P = ParamSpec("P")
R = TypeVar("R")

FAILURE = 1
USAGE = 2


@final
class CommandFailure(Exception):
    """Ends the command with `message` and `exit_code`: 1 for a failure, 2 for wrong use."""

    def __init__(self, message: str, exit_code: int = FAILURE) -> None:
        self.message = message
        self.exit_code = exit_code
        super().__init__(message)


def one_line_failures(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose `CommandFailure` and `ServingError` become one line and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except CommandFailure as failure:
            say_failure(failure.message)
            raise typer.Exit(failure.exit_code) from None
        except ServingError as error:
            say_failure(f"{error.code.name}: {error.message}")
            raise typer.Exit(FAILURE) from None

    return wrapped


def say_failure(message: str) -> None:
    """Prints `message` as one line on standard error; control characters of a server stay harmless."""
    text = " ".join(message.split())
    safe = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    typer.echo(f"reactant: {safe}", err=True)
