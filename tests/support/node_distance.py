"""A server as clients far away reach it: every byte takes its time, both ways."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast, final

from tests.support.process import HOST


@final
class _End(asyncio.Protocol):
    """One side of a relayed connection; what comes in goes out at the `other`, later."""

    def __init__(self, seconds: float, all_ends: set[_End], other: _End | None = None) -> None:
        self._seconds = seconds
        self._all = all_ends
        self._before: list[bytes] = []
        self.other = other
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._all.add(self)

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._pass_on, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._all.discard(self)
        # Behind what is still on its way.
        asyncio.get_running_loop().call_later(self._seconds, self._hang_up)

    def meet(self, other: _End) -> None:
        """The far side is there."""
        self.other = other
        for data in self._before:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._before.append(data)
        else:
            self.other.transport.write(data)

    def _hang_up(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


@contextmanager
def distant(port: int, seconds: float = 0.03) -> Iterator[str]:
    """The address of a relay to `port` of this machine that delays each byte by `seconds`."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    over = asyncio.Event()
    address: list[str] = []
    ends: set[_End] = set()
    dialling: set[asyncio.Task[None]] = set()

    def accepted() -> _End:
        near = _End(seconds, ends)
        task = loop.create_task(dial(near))
        dialling.add(task)
        task.add_done_callback(dialling.discard)
        return near

    async def dial(near: _End) -> None:
        try:
            _, far = await loop.create_connection(lambda: _End(seconds, ends, near), HOST, port)
        except OSError:
            if near.transport is not None:
                near.transport.abort()
        else:
            near.meet(far)

    async def serve() -> None:
        server = await loop.create_server(accepted, HOST, 0)
        address.append(f"{HOST}:{server.sockets[0].getsockname()[1]}")
        started.set()
        await over.wait()
        server.close()
        if dialling:
            await asyncio.wait(dialling)
        for end in ends:
            if end.transport is not None:
                end.transport.abort()
        await asyncio.sleep(0)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="distance")
    thread.start()
    started.wait()
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
