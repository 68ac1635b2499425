from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reactant_core.testing import eventually_sync
from reactant_supervisor.output import LineOutput, PrefixedStream, prefixed


@contextmanager
def pipe_output(high_water_bytes: int = 1024) -> Iterator[tuple[LineOutput, int]]:
    """An output into a pipe, and the descriptor to read from."""
    read_end, write_end = os.pipe()
    output = LineOutput(write_end, high_water_bytes=high_water_bytes)
    output.start()
    try:
        yield output, read_end
    finally:
        os.close(read_end)
        output.close()
        os.close(write_end)


def _read(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := os.read(descriptor, 65536)):
        data += chunk
    return data


def _fill(descriptor: int) -> None:
    """Shrinks the pipe so that little fits in."""
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)


def test_blocks_come_out_in_order() -> None:
    with pipe_output() as (output, reader):
        blocks = [prefixed(f"worker{n % 3}", [b"line %d" % n]) for n in range(100)]
        for block in blocks:
            output.write(block)
        assert _read(reader, sum(map(len, blocks))) == b"".join(blocks)


def test_a_stopped_reader_blocks_nobody_and_reading_on_resumes_the_source() -> None:
    with pipe_output() as (output, reader):
        _fill(reader)
        written = 0
        while output.write(b"x" * 99 + b"\n"):
            written += 1
        resumed = threading.Event()
        output.on_drained(resumed.set)
        assert not resumed.is_set()
        _read(reader, (written + 1) * 100)
        assert resumed.wait(10)


def test_room_is_told_at_once_when_there_is_room() -> None:
    with pipe_output() as (output, _):
        resumed = threading.Event()
        output.on_drained(resumed.set)
        assert resumed.is_set()


def test_closing_writes_out_the_rest() -> None:
    read_end, write_end = os.pipe()
    output = LineOutput(write_end)
    output.start()
    output.write(b"last words\n")
    assert output.close()
    os.close(write_end)
    assert os.read(read_end, 100) == b"last words\n"
    os.close(read_end)


def test_closing_does_not_wait_for_a_stopped_reader() -> None:
    with pipe_output() as (output, reader):
        _fill(reader)
        output.write(b"x" * 100_000 + b"\n")
        assert not output.close(timeout_seconds=0.01)


def test_a_reader_that_is_gone_loses_lines_but_stops_nobody() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    output = LineOutput(write_end, high_water_bytes=10)
    output.start()
    output.write(b"into the void\n")
    eventually_sync(lambda: output.write(b"still here, far more than the high-water mark\n"))
    assert output.close()
    os.close(write_end)


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_descriptor_made_non_blocking_by_others_loses_nothing(size: int) -> None:
    with pipe_output() as (output, reader):
        _fill(reader)
        os.set_blocking(output._descriptor, False)
        output.write(b"x" * size + b"\n")
        assert _read(reader, size + 1) == b"x" * size + b"\n"


def test_our_own_log_lines_are_prefixed_whole_lines() -> None:
    with pipe_output() as (output, reader):
        stream = PrefixedStream("supervisor", output)
        stream.write("first ")
        stream.write("half\nsecond ünd\npart")
        expected = "[supervisor] first half\n[supervisor] second ünd\n".encode()
        assert _read(reader, len(expected)) == expected
        assert not stream.isatty()
