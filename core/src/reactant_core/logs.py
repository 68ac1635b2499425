"""Structured logs: every line of the process, ours and the libraries', through one pipeline.

A console layout where people read it (colours on a terminal only), one JSON object a line elsewhere.
Each event is one write, so that processes sharing a stream never cut each other's lines.
"""

from __future__ import annotations

import io
import logging
import math
import os
import select
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TextIO, final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

FORMAT_VARIABLE: Final = "REACTANT_LOG_FORMAT"
FORMATS: Final = ("console", "json")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# Libraries whose INFO is about themselves, not about the service.
_QUIET: Final = ("asyncio", "jax", "uvicorn", "watchfiles")

# What a gRPC server says, with a traceback, of bytes that are no message or no metadata: anyone could fill
# the log with it.
_NOT_A_MESSAGE: Final = {
    "grpc._cython.cygrpc": ("Unexpected [DecodeError] raised by servicer method", "Invalid encoding on "),
    "grpc._common": ("Exception deserializing message!",),
    "pygrpc_native._server": ("Exception deserializing request!",),
}

_FIRST_KEYS: Final = ("timestamp", "level", "event", "logger")


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger called `name`. Usable before `configure_logs`, then by stdlib logging's own defaults."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def configure_logs(
    level: str, *, stream: TextIO | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Sends every log line of the process to `stream` (standard error when None) from `level` up.

    Replaces the handlers of the root logger; may be called again. `REACTANT_LOG_FORMAT` in `environ` (the
    process environment when None) set to `console` or `json` overrides the choice by terminal; `NO_COLOR`
    set to anything turns colours off, `FORCE_COLOR` turns them on where there is no terminal. Tracebacks of
    gRPC about a request that is no message are left out.

    Raises:
        ValueError: the level or the format is not one of those accepted.
    """
    environ = os.environ if environ is None else environ
    stream = sys.stderr if stream is None else stream
    _level_number(level)
    terminal = stream.isatty()
    layout = environ.get(FORMAT_VARIABLE, "") or ("console" if terminal else "json")
    if layout not in FORMATS:
        raise ValueError(f"{FORMAT_VARIABLE} = {layout!r}: accepted are {', '.join(FORMATS)}")
    handler = _LineHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_shared_processors(), structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_console(colors=_colors(terminal, environ)) if layout == "console" else _json()),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    for name in _NOT_A_MESSAGE:
        logging.getLogger(name).addFilter(_not_of_garbage)
    set_level(level)
    logging.captureWarnings(True)


def _not_of_garbage(record: logging.LogRecord) -> bool:
    """False for a client's bytes that are no message. A handler's own exceptions stay."""
    return not (
        record.getMessage().startswith(_NOT_A_MESSAGE[record.name])
        and record.exc_info
        and _raised_by_grpc(record.exc_info[2])
    )


def _raised_by_grpc(trace: TracebackType | None) -> bool:
    # A parser of protobuf has no frame. The innermost one is gRPC's when the request was at fault, and the
    # handler's when it was another message.
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return module.partition(".")[0] in ("grpc", "pygrpc_native")


def set_level(name: str) -> None:
    """Changes the level of the running process.

    Raises:
        ValueError: not one of `LEVELS`.
    """
    number = _level_number(name)
    logging.getLogger().setLevel(number)
    for quiet in _QUIET:
        logging.getLogger(quiet).setLevel(max(number, logging.WARNING))


def level() -> str:
    """The level in force, one of `LEVELS`."""
    number = logging.getLogger().getEffectiveLevel()
    return next((name for name in LEVELS if _level_number(name) >= number), LEVELS[-1])


def _level_number(name: str) -> int:
    if name.lower() not in LEVELS:
        raise ValueError(f"log level {name!r}: accepted are {', '.join(LEVELS)}")
    number: int = getattr(logging, name.upper())
    return number


def _colors(terminal: bool, environ: Mapping[str, str]) -> bool:
    # FORCE_COLOR: a supervisor reads us from a pipe and shows us on a terminal.
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return terminal or bool(environ.get("FORCE_COLOR"))


def _console(*, colors: bool) -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
        )
    ]


def _json() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        _order_keys,
        structlog.processors.JSONRenderer(),
    ]


def _order_keys(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    ordered = {key: event.pop(key) for key in _FIRST_KEYS if key in event}
    ordered.update((key, _finite(value)) for key, value in event.items())
    return ordered


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity; a reader that is strict would lose the whole line.
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@final
class _LineHandler(logging.Handler):
    """Writes each event with a single `write(2)` where the stream has a file descriptor."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            try:
                fd = self._stream.fileno()
            except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
                self._stream.write(line)
                self._stream.flush()
                return
            self._stream.flush()
            _write_all(fd, line.encode("utf-8", "backslashreplace"))
        except (BrokenPipeError, ConnectionError):
            # Nobody reads any more; the service goes on.
            return
        except Exception:
            self.handleError(record)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # A terminal or pipe that another process made non-blocking.
            select.select([], [fd], [])
