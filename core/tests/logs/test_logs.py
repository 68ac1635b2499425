"""One pipeline for every line of the process."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from reactant_core.logs import configure_logs, get_logger, level, set_level


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Puts global logging state back."""
    root = logging.getLogger()
    handlers, number = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(number)
    structlog.contextvars.clear_contextvars()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def json_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_off_a_terminal_with_values_and_order() -> None:
    stream = io.StringIO()
    configure_logs("info", stream=stream, environ={})
    get_logger("reactant_worker.app").info(
        "ready", port=8001, path=Path("/x"), ratio=float("nan"), name="модель"
    )
    line = stream.getvalue()
    record = json.loads(line)
    assert list(record)[:4] == ["timestamp", "level", "event", "logger"]
    assert (record["level"], record["event"], record["logger"]) == ("info", "ready", "reactant_worker.app")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", record["timestamp"])
    assert (record["port"], record["name"], record["ratio"]) == (8001, "модель", "nan")
    assert "/x" in record["path"]
    assert line.count("\n") == 1


def test_console_on_a_terminal_coloured_there_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    configure_logs("info", stream=terminal, environ={})
    get_logger("x").info("ready", port=8001)
    assert "\x1b[" in terminal.getvalue()
    configure_logs("info", stream=pipe, environ={"REACTANT_LOG_FORMAT": "console"})
    get_logger("x").info("ready", port=8001)
    assert "\x1b[" not in pipe.getvalue()
    assert re.search(r"\[info\s*\] ready .*port=8001", pipe.getvalue())
    plain = Terminal()
    configure_logs("info", stream=plain, environ={"NO_COLOR": "1"})
    get_logger("x").info("ready")
    assert "\x1b[" not in plain.getvalue()
    forced = io.StringIO()
    configure_logs("info", stream=forced, environ={"REACTANT_LOG_FORMAT": "console", "FORCE_COLOR": "1"})
    get_logger("x").info("ready")
    assert "\x1b[" in forced.getvalue()


def test_json_on_a_terminal_when_asked() -> None:
    terminal = Terminal()
    configure_logs("info", stream=terminal, environ={"REACTANT_LOG_FORMAT": "json"})
    get_logger("x").info("ready")
    assert json_lines(terminal)[0]["event"] == "ready"


def test_unknown_format_and_level_say_what_is_accepted() -> None:
    with pytest.raises(ValueError, match="REACTANT_LOG_FORMAT = 'xml': accepted are console, json"):
        configure_logs("info", stream=io.StringIO(), environ={"REACTANT_LOG_FORMAT": "xml"})
    with pytest.raises(ValueError, match="'loud': accepted are debug, info, warning, error, critical"):
        configure_logs("loud", stream=io.StringIO(), environ={})
    with pytest.raises(ValueError, match="accepted are"):
        set_level("notset")


def test_the_level_changes_while_running() -> None:
    stream = io.StringIO()
    configure_logs("warning", stream=stream, environ={})
    log = get_logger("x")
    assert level() == "warning"
    log.info("one")
    set_level("DEBUG")
    assert level() == "debug"
    log.debug("two")
    set_level("error")
    log.warning("three")
    assert [record["event"] for record in json_lines(stream)] == ["two"]


@pytest.mark.parametrize("name", ["grpc._cython.cygrpc", "uvicorn.error", "jax._src.xla_bridge", "asyncio"])
def test_lines_of_libraries_come_the_same_way(name: str) -> None:
    stream = io.StringIO()
    configure_logs("info", stream=stream, environ={})
    logging.getLogger(name).warning("lost %d of %s", 3, "them", extra={"peer": "ipv4:1"})
    record = json_lines(stream)[0]
    assert (record["event"], record["level"], record["logger"]) == ("lost 3 of them", "warning", name)
    assert record["peer"] == "ipv4:1"


def test_libraries_that_talk_about_themselves_are_quiet_below_warning() -> None:
    stream = io.StringIO()
    configure_logs("debug", stream=stream, environ={})
    for name in ("uvicorn.error", "jax._src.dispatch", "asyncio"):
        logging.getLogger(name).info("chatter")
    assert stream.getvalue() == ""


def test_warnings_become_lines() -> None:
    stream = io.StringIO()
    configure_logs("info", stream=stream, environ={})
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("old thing", DeprecationWarning, "file.py", 3)
    assert "old thing" in json_lines(stream)[0]["event"]


@pytest.mark.parametrize("layout", ["json", "console"])
def test_exceptions_carry_their_traceback_in_one_event(layout: str) -> None:
    stream = io.StringIO()
    configure_logs("info", stream=stream, environ={"REACTANT_LOG_FORMAT": layout})
    try:
        raise RuntimeError("broken\nin two lines")
    except RuntimeError:
        get_logger("ours").exception("failed", model="m")
        logging.getLogger("theirs").exception("failed too")
    text = stream.getvalue()
    if layout == "json":
        for record in json_lines(stream):
            assert "Traceback (most recent call last)" in record["exception"]
            assert "RuntimeError: broken\nin two lines" in record["exception"]
        assert text.count("\n") == 2
    else:
        assert text.count("Traceback (most recent call last)") == 2
        assert "RuntimeError: broken" in text


def test_what_cannot_be_encoded_or_formatted_does_not_stop_the_service(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+", encoding="ascii") as stream:
        configure_logs("info", stream=stream, environ={"REACTANT_LOG_FORMAT": "console"})
        get_logger("x").info("lone surrogate", text="\ud800", event2="плохо")
        get_logger("x").info("object", value=object())
        stream.seek(0)
        text = (tmp_path / "log").read_text(encoding="utf-8")
    assert "lone surrogate" in text
    assert "<object object" in text


def test_context_is_added_to_lines() -> None:
    stream = io.StringIO()
    configure_logs("info", stream=stream, environ={})
    with structlog.contextvars.bound_contextvars(request="r1"):
        get_logger("x").info("one")
        logging.getLogger("lib").warning("two")
    assert [record["request"] for record in json_lines(stream)] == ["r1", "r1"]


def test_a_logger_works_before_configuration(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("early").warning("careful", port=1)
    assert "careful" in caplog.text


def test_nobody_reading_is_no_error() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        configure_logs("info", stream=stream, environ={})
        os.close(reader)
        get_logger("x").info("into the void")
        get_logger("x").info("again")


def test_a_slow_reader_of_a_non_blocking_stream_loses_nothing() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    received = bytearray()

    def drain() -> None:
        while data := os.read(reader, 1 << 16):
            received.extend(data)

    thread = threading.Thread(target=drain)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        configure_logs("info", stream=stream, environ={})
        thread.start()
        for number in range(20):
            get_logger("x").info("long", number=number, text="x" * 50_000)
    thread.join(10)
    os.close(reader)
    records = [json.loads(line) for line in received.decode().splitlines()]
    assert [record["number"] for record in records] == list(range(20))
    assert {len(record["text"]) for record in records} == {50_000}


PROGRAM = """
import sys
from reactant_core.logs import configure_logs, get_logger
configure_logs("info")
log = get_logger("p" + sys.argv[1])
for number in range(300):
    log.info("line", number=number, padding="x" * 500)
"""


@pytest.mark.slow
def test_processes_that_share_a_pipe_do_not_cut_each_others_lines() -> None:
    reader, writer = os.pipe()
    children = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(number)], stderr=writer) for number in range(3)
    ]
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        records = [json.loads(line) for line in stream]
    assert [child.wait(30) for child in children] == [0, 0, 0]
    for number in range(3):
        mine = [record["number"] for record in records if record["logger"] == f"p{number}"]
        assert mine == list(range(300))
