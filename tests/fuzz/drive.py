"""Sends inputs to a listener over many connections at a time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, final

from tests.fuzz import frames as f
from tests.fuzz.corpus import PREAMBLE
from tests.fuzz.mutate import Input, make, segments

BATCH: Final = 8
"""Inputs on one connection, if it lives that long."""

PARALLEL: Final = 32
_STALL_SECONDS: Final = 0.05
_LINGER_SECONDS: Final = 0.02
_CLOSE_SECONDS: Final = 5.0
_MARK: Final = b"fuzz"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time


@final
@dataclass(slots=True)
class Tally:
    """What has happened so far.

    Attributes:
        inputs: read by the server, or as much of them as it wanted.
        connections: opened.
        ends: how connections ended.
        refused: a connection was, which ended the run.
    """

    inputs: int = 0
    connections: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    refused: bool = False


@final
class _Reader(asyncio.Protocol):
    """Reads frames for as long as the server sends some; counts the marks that come back."""

    def __init__(self) -> None:
        self._buffer = b""
        self._changed = asyncio.Event()
        self.marks = -1
        self.closed = False

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        at = 0
        while len(buffer) - at >= f.HEADER_BYTES:
            end = at + f.HEADER_BYTES + int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) < end:
                break
            if buffer[at + 3] == f.PING and buffer[at + 4] & f.ACK and buffer[end - 8 : end - 4] == _MARK:
                self.marks = max(self.marks, int.from_bytes(buffer[end - 4 : end], "big"))
                self._changed.set()
            at = end
        self._buffer = buffer[at:]

    def connection_lost(self, exc: BaseException | None) -> None:
        self.closed = True
        self._changed.set()

    async def reached(self, mark: int) -> None:
        """Returns when this mark has come back, the connection is gone, or nothing has moved for a while."""
        while not self.closed and self.marks < mark:
            self._changed.clear()
            try:
                async with asyncio.timeout(_STALL_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def end(self, seconds: float) -> None:
        """Returns when the connection is gone or after so long."""
        try:
            async with asyncio.timeout(seconds):
                while not self.closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


@final
class Driver:
    """Works through the inputs of a run; `tally` grows meanwhile.

    Args:
        host: of the listener.
        port: of the listener.
        seed: of the run.
    """

    def __init__(self, host: str, port: int, seed: str) -> None:
        self._address = (host, port)
        self._seed = seed
        self._numbers: deque[int] = deque()
        self.tally = Tally()

    async def run(self, numbers: Iterable[int]) -> None:
        """Returns when each of these inputs has been read by the server, or as much of it as it wanted."""
        self._numbers.extend(numbers)
        async with asyncio.TaskGroup() as group:
            for _ in range(PARALLEL):
                group.create_task(self._work())

    async def _work(self) -> None:
        while self._numbers:
            await self._connection()

    async def _connection(self) -> None:
        tally = self.tally
        tally.connections += 1
        rng = Random(f"{self._seed}:connection:{tally.connections}")
        reader = _Reader()
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: reader, *self._address)
        except ConnectionError:
            self.tally.refused = True
            self._numbers.clear()
            return
        sent = self._drawn()
        try:
            begun = await _write(transport, reader, rng, [given for _, given in sent])
            await reader.reached(begun - 1)
            # Of what came back after one that the server did not understand, nothing was looked at.
            done = max(1, min(len(sent), reader.marks + 2))
            tally.inputs += done
            self._numbers.extend(number for number, _ in sent[done:])
            tally.ends[await _ended(transport, reader, rng)] += 1
        finally:
            transport.abort()
            await reader.end(_CLOSE_SECONDS)

    def _drawn(self) -> list[tuple[int, Input]]:
        """The next inputs for one connection: an opening only at its beginning, a fatal one last."""
        drawn: list[tuple[int, Input]] = []
        stream = 1
        while self._numbers and len(drawn) < BATCH:
            number = self._numbers[0]
            given = make(self._seed, number, stream)
            if given.opening and drawn:
                break
            self._numbers.popleft()
            drawn.append((number, given))
            stream += given.span
            if given.fatal:
                break
        return drawn


async def _write(transport: asyncio.Transport, reader: _Reader, rng: Random, inputs: list[Input]) -> int:
    """Writes the inputs, a mark after each; returns how many were begun."""
    ready = b"".join(PREAMBLE)
    for index, given in enumerate(inputs):
        mark = f.ping(_MARK + index.to_bytes(4, "big"))
        content = (b"" if given.opening else ready) + given.content + mark
        ready = b""
        parts = segments(rng, content)
        for part in parts:
            if reader.closed or transport.is_closing():
                return index + 1
            transport.write(part)
            if len(parts) > 1:
                await asyncio.sleep(0)
    return len(inputs)


async def _ended(transport: asyncio.Transport, reader: _Reader, rng: Random) -> str:
    """Ends the connection in one of the ways clients do, and says how."""
    if reader.closed:
        return "closed by the server"
    kind = rng.choice(("closed", "reset", "half-closed", "lingered"))
    if kind == "reset":
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
    elif kind == "half-closed":
        # The server may have reset it a moment ago, and its loop has not said so yet.
        with suppress(OSError):
            transport.write_eof()
        await reader.end(_CLOSE_SECONDS)
        if not reader.closed:
            return "half-closed, and the server held on"
    elif kind == "lingered":
        await reader.end(_LINGER_SECONDS)
    transport.close()
    return kind
