"""One server for many tests, started again should a test have killed it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import final

from tests.support.client import Client
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.target import Target


@final
class SharedServer:
    """Keeps a server running while tests come and go; use as a context manager.

    Leaving the block stops it and demands exit code 0 and a log without errors but the expected ones.

    Args:
        name: what it is, such as `worker-native`.
        make: a server not yet started.
        expected: how events begin that it may log as errors.
    """

    def __init__(
        self, name: str, make: Callable[[], ServerProcess | Fleet], expected: tuple[str, ...]
    ) -> None:
        self._name = name
        self._make = make
        self._expected = expected
        self._stack = ExitStack()
        self._target: Target | None = None

    def __enter__(self) -> SharedServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        target, self._target = self._target, None
        with self._stack:
            if target is None or kind is not None or not target.process.running:
                return
            target.client.close()
            assert target.process.stop() == 0, target.process.tail()
            surprises = self._surprises(target.process)
            assert not surprises, surprises

    def running(self) -> Target:
        """The server, up and ready."""
        if self._target is None or not self._target.process.running:
            self._stack.close()
            process = self._make()
            self._stack.enter_context(process)
            client = self._stack.enter_context(Client(process.address))
            process.wait_ready()
            self._target = Target(self._name, process, client)
        return self._target

    def _surprises(self, process: ServerProcess | Fleet) -> list[object]:
        """Errors in the log that no test has asked for, and lines that are not the log's."""
        return [
            event
            for event in process.events()
            if "text" in event
            or (event.get("level") in ("error", "critical") and not event["event"].startswith(self._expected))
        ]
