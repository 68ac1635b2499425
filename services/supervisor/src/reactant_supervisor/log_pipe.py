"""Reads what a child writes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast, final

from reactant_supervisor.lines import LineSplitter
from reactant_supervisor.output import LineOutput, prefixed


@final
class LogPipe(asyncio.Protocol):
    """Reads a child's output and hands it on line by line; pauses the child when the output is full."""

    def __init__(self, name: str, output: LineOutput) -> None:
        self._name = name
        self._output = output
        self._splitter = LineSplitter()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.ReadTransport | None = None
        self._last_words = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when every line of the child has been handed on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By what connect_read_pipe promises; uvloop's own class is not derived from it.
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        room = self._output.write(prefixed(self._name, self._splitter.feed(data)))
        if not room and not self._last_words:
            transport.pause_reading()
            self._output.on_drained(self._room)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._output.write(prefixed(self._name, self._splitter.flush()))
        if not self.closed.done():
            self.closed.set_result(None)

    def read_last_words(self) -> None:
        """The child has ended: reads what is still in the pipe, which is little, also into a full output."""
        self._last_words = True
        self._resume()

    def close(self) -> None:
        """Stops reading, also when something else still holds the other end."""
        if self._transport is not None:
            self._transport.close()

    def _room(self) -> None:
        # Called from the writing thread, perhaps after the loop has gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
