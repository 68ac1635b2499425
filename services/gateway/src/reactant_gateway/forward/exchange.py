"""One ModelInfer: peeked at, sent to a worker, tried on another while nothing can have run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, final

from reactant_core.kserve.surface import unknown_model
from reactant_gateway.forward.forwarder import RETRY_PROCESS_BYTES, RETRY_REQUEST_BYTES, Counted, Forwarder
from reactant_gateway.forward.peek import (
    PEEK_BYTES,
    Malformed,
    Peeked,
    batch_rows,
    inflate_prefix,
    peek,
)
from reactant_gateway.h2 import grpc
from reactant_gateway.h2.client import ClientConnection
from reactant_gateway.h2.connection import Acknowledges
from reactant_gateway.h2.grpc import Headers
from reactant_gateway.workers.pool import WorkerLink
from reactant_policy.routing.failover import Fault, may_retry
from reactant_policy.routing.table import Route

_RETRYABLE: Final = (grpc.UNAVAILABLE, grpc.NOT_FOUND)
_UNKNOWN_LENGTH: Final = 1 << 62
_SMALL_BYTES: Final = 4096
# Connections that may be made to a worker while a request waits for room on one.
_MOST_WAITS: Final = 4


class Downstream(Protocol):
    """Where the answer goes: a client's connection, or one message's place in a ModelStreamInfer."""

    def send_response(self, stream: int, headers: Headers, end_stream: bool) -> None:
        """The head, or all of it."""

    def send_data(self, stream: int, data: bytes, end_stream: bool) -> None:
        """A part of the body."""

    def send_trailers(self, stream: int, headers: Headers) -> None:
        """The end."""

    def finish(self, stream: int, request_ended: bool, left: Callable[[], None]) -> None:
        """The answer is complete; `left` is called when it has left, or never can."""

    def owe(self, stream: int, peer: Acknowledges, peer_stream: int, size: int) -> None:
        """Acknowledge `size` bytes to `peer` when they have left."""

    def acknowledge(self, stream: int, size: int) -> None:
        """So many bytes of the request have been taken."""


@final
class Exchange:
    """A request and its answer. Told by two connections: its client's (`ServerStream`) and, for each attempt,
    a worker's (`ClientStream`).

    Args:
        forwarder: what exchanges share.
        down: where the answer goes.
        stream: the request's stream there.
        headers: what is passed on to a worker, without `grpc-timeout`.
        encoding: `grpc-encoding` of the request.
        timeout: seconds until the client's deadline.
        counted: what the request has been admitted for.

    Attributes:
        model: `model_name`, empty until it is known.
        request_id: the request's id, not decoded.
    """

    __slots__ = (
        "_begun", "_counted", "_deadline", "_dialling", "_done", "_down", "_encoding", "_ended", "_full",
        "_fw", "_head", "_headers", "_holders", "_idempotent", "_items", "_kept", "_kept_bytes", "_length",
        "_link", "_look_at", "_lost", "_marked_at_flush", "_opened_at", "_opened_at_flush", "_received",
        "_route", "_sent_at", "_started", "_stream", "_timer", "_tried", "_unacknowledged", "_up",
        "_up_stream", "_waiting", "_waits", "_work", "_worker", "_worker_seconds", "model", "request_id",
    )  # fmt: skip

    def __init__(
        self,
        forwarder: Forwarder,
        down: Downstream,
        stream: int,
        headers: Headers,
        *,
        encoding: bytes,
        timeout: float | None,
        counted: Counted,
    ) -> None:
        self._fw = forwarder
        self._down = down
        self._stream = stream
        self._headers = headers
        self._encoding = encoding
        self._counted = counted
        self._started = perf_counter()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        if timeout is not None:
            self._deadline = self._started + timeout
            self._timer = forwarder.loop.call_later(timeout, self._expired)
        # The request as far as it has come; None once it cannot be sent again.
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._received = 0
        self._unacknowledged = 0
        self._length = -1
        self._look_at = 0
        self._ended = False
        self._waiting = False
        self._waits = 0
        self._lost = False
        self._idempotent = True
        self._dialling: WorkerLink | None = None
        # What routing made of it.
        self.model = ""
        self.request_id = b""
        self._route: Route | None = None
        self._holders: frozenset[str] | None = None
        self._work = 0.0
        self._items = 0
        # The attempt in progress.
        self._worker: str | None = None
        self._link: WorkerLink | None = None
        self._up: ClientConnection | None = None
        self._up_stream = 0
        self._opened_at_flush = 0
        self._marked_at_flush = 0
        self._opened_at = 0.0
        self._sent_at = 0.0
        self._worker_seconds: float | None = None
        self._tried: tuple[str, ...] = ()
        self._full = False
        self._head: Headers | None = None
        self._begun = False
        self._done = False

    # --- the client's side -----------------------------------------------------------------------------

    def request_data(self, data: bytes, ended: bool) -> None:
        """A part of the request."""
        size = len(data)
        if self._done:
            self._down.acknowledge(self._stream, size)
            return
        self._received += size
        self._ended = ended
        if self._kept is not None:
            self._keep(data, size)
        up = self._up
        if up is None:
            if self._received <= RETRY_REQUEST_BYTES and self._fw.retained <= RETRY_PROCESS_BYTES:
                self._down.acknowledge(self._stream, size)
            else:
                # Beyond that the client waits until a worker takes it.
                self._unacknowledged += size
            if not self._waiting and (self._received >= self._look_at or ended):
                self._look()
            return
        up.send_data(self._up_stream, data, ended)
        self._marked_at_flush = up.flushes
        up.owe(self._up_stream, self._down, self._stream, size)
        if self._received > self._length:
            self._two_messages()

    def client_gone(self) -> None:
        """The client has cancelled or lost its connection."""
        if not self._done:
            self._leave(ended=False)
            self._finish(grpc.CANCELLED)
            self._left()

    def answer(self, code: int, message: str, extra: Headers = ()) -> None:
        """Ends the exchange with a status of ours."""
        if self._done:
            return
        status = grpc.status_headers(code, message, extra)
        if self._begun:
            self._down.send_trailers(self._stream, status)
        else:
            self._down.send_response(self._stream, grpc.RESPONSE_HEADERS + status, True)
        self._down.finish(self._stream, self._ended, self._left)
        self._leave(ended=False)
        self._finish(code)

    # --- the worker's side -----------------------------------------------------------------------------

    def response_headers(self, headers: Headers, ended: bool) -> None:
        """The head of the response, held back until it is known not to be a refusal."""
        if ended:
            self._response_end(headers, only=True)
        else:
            self._head = headers

    def response_data(self, data: bytes, ended: bool) -> None:
        """A part of the response."""
        up, down, stream = self._up, self._down, self._stream
        if up is None or self._head is None:
            return
        if not self._begun:
            if int.from_bytes(data[1:5], "big") > self._fw.limits.max_response_bytes:
                up.acknowledge(self._up_stream, len(data))
                limit = self._fw.limits.max_response_bytes
                self.answer(grpc.RESOURCE_EXHAUSTED, f"the response is larger than {limit} bytes")
                return
            self._begun = True
            down.send_response(stream, self._head, False)
        down.send_data(stream, data, False)
        down.owe(stream, up, self._up_stream, len(data))
        if ended:
            self.answer(grpc.INTERNAL, f"worker {self._worker} ended its response without a status")

    def response_trailers(self, headers: Headers) -> None:
        """The end of the response."""
        self._response_end(headers, only=False)

    def upstream_reset(self, error_code: int) -> None:
        """The worker reset the stream."""
        worker = self._worker
        if error_code == grpc.REFUSED_STREAM:
            self._fault(Fault.REFUSED_STREAM, grpc.UNAVAILABLE, f"worker {worker} refused the request")
        else:
            code = grpc.status_of_reset(error_code)
            self._fault(Fault.LOST, code, f"worker {worker} reset the request (HTTP/2 error {error_code})")

    def upstream_lost(self, unprocessed: bool, reason: str) -> None:
        """The connection to the worker is gone, or will not answer."""
        up = self._up
        if unprocessed:
            fault = Fault.GOAWAY
        elif self._received < self._length or (
            up is not None and up.is_unsent(self._up_stream, marked_at_flush=self._marked_at_flush)
        ):
            fault = Fault.UNSENT
        else:
            fault = Fault.LOST
        self._fault(fault, grpc.UNAVAILABLE, f"connection to worker {self._worker} lost: {reason}")

    # --- routing ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Finds out what the request is for, as soon as enough of it is there."""
        kept = self._kept or []
        if len(kept) > 1:
            kept[:] = (b"".join(kept),)
        data = kept[0]
        have = len(data)
        if have < grpc.PREFIX_BYTES:
            if self._ended:
                self.answer(grpc.UNIMPLEMENTED, "the request holds no message; one is needed")
            return
        self._length = grpc.PREFIX_BYTES + int.from_bytes(data[1:5], "big")
        limit = self._fw.limits.max_request_bytes
        if self._length - grpc.PREFIX_BYTES > limit:
            self.answer(grpc.RESOURCE_EXHAUSTED, f"the request is larger than {limit} bytes")
            return
        if have > self._length:
            self._two_messages()
            return
        # Small parts are not looked at again and again: the next time, it is twice as much.
        self._look_at = min(2 * have, self._length)
        try:
            if data[0] == 0:
                start, found = grpc.PREFIX_BYTES, peek(data, grpc.PREFIX_BYTES, self._length)
            else:
                data = self._inflated(data)
                start, found = 0, peek(data, 0, len(data) if self._whole(data) else _UNKNOWN_LENGTH)
            if found is not None:
                self._peeked(data, start, found)
                return
        except Malformed as error:
            self.answer(grpc.INVALID_ARGUMENT, f"the request is no ModelInferRequest: {error}")
            return
        if self._ended or have >= self._length:
            self.answer(grpc.INVALID_ARGUMENT, "the request ends inside a message")

    def _inflated(self, data: bytes) -> bytes:
        inflated = inflate_prefix(data[grpc.PREFIX_BYTES :], self._encoding)
        if inflated is None:
            encoding = self._encoding.decode("ascii", "replace")
            raise Malformed(f"grpc-encoding '{encoding}' is none of identity, gzip, deflate")
        return inflated

    def _whole(self, inflated: bytes) -> bool:
        return self._received >= self._length and len(inflated) < PEEK_BYTES

    def _peeked(self, data: bytes, start: int, found: Peeked) -> None:
        self.model, self.request_id = found.model, found.id
        if found.regions:
            holders = [self._fw.holders(region) for region in found.regions]
            # A region nobody holds: any worker will say so in the words a client knows.
            known = [holder for holder in holders if holder]
            self._holders = frozenset.intersection(*known) if known else None
        route = self._fw.router.find(found.model)
        if route is None:
            self._waiting = True
            self._fw.spawn(self._look_again(data, start, found.end))
            return
        self._routed(route, data, start, found.end)

    def _routed(self, route: Route, data: bytes, start: int, end: int) -> None:
        """Weighs the request, whose message begins at `start` and is known up to `end`, and sends it."""
        router, rows = self._fw.router, None
        if route.batch_input is not None and router.counts_items:
            rows = batch_rows(data, start, end, route.batch_input.encode(), route.batch_axis)
        self._work = router.work(route, rows)
        if router.follows_requests:
            self._items = router.arrived(route, rows)
        self._send(route)

    async def _look_again(self, data: bytes, start: int, end: int) -> None:
        """A model that is not in the table may be new: the workers are asked before it is denied."""
        try:
            await self._fw.refresh()
        finally:
            self._waiting = False
            if not self._done:
                route = self._fw.router.find(self.model)
                if route is None and not any(
                    view.available for view in self._fw.router.table.workers.values()
                ):
                    # Nobody can know what the workers would have.
                    self.answer(grpc.UNAVAILABLE, "no worker is ready", (grpc.NOT_STARTED,))
                elif route is None:
                    self.answer(grpc.NOT_FOUND, unknown_model(self.model).message, (grpc.NOT_STARTED,))
                else:
                    self._routed(route, data, start, end)

    def _send(self, route: Route) -> None:
        self._route = route
        if self._attempt(route):
            return
        if self._wait_for(self._dialling):
            return
        name = route.name
        if self._full:
            self._fw.metrics.shed("worker_in_flight")
            self.answer(
                grpc.RESOURCE_EXHAUSTED,
                f"every worker that serves model '{name}' has its full number of requests in flight",
                (grpc.NOT_STARTED,),
            )
        else:
            self.answer(
                grpc.UNAVAILABLE, f"no worker can take requests for model '{name}' now", (grpc.NOT_STARTED,)
            )

    def _attempt(self, route: Route) -> bool:
        """Sends the request to the next worker; False when there is none."""
        fw = self._fw
        while True:
            worker = fw.router.choose(route, self._tried, self._holders)
            if worker is None:
                return False
            link = fw.links.get(worker)
            up = None if link is None else link.acquire()
            if link is not None and up is not None:
                try:
                    stream = up.request(self._attempt_headers(), self)
                    break
                except ConnectionError:
                    pass
            if link is not None:
                self._full = self._full or link.connected
                self._dialling = link if link.may_widen else self._dialling
            self._tried = (*self._tried, worker)
        self._worker, self._up, self._up_stream = worker, up, stream
        # A worker that has had it counts, also when the table does not list it any more.
        self._idempotent = self._idempotent and route.idempotent
        self._opened_at_flush = self._marked_at_flush = up.flushes
        self._opened_at = fw.loop.time()
        self._sent_at = perf_counter()
        self._link = link
        link.in_flight += 1
        fw.router.begin(worker, route.name, self._work, self._items)
        parts = self._kept or ()
        last = len(parts) - 1
        for index, part in enumerate(parts):
            up.send_data(stream, part, self._ended and index == last)
        if self._unacknowledged:
            up.owe(stream, self._down, self._stream, self._unacknowledged)
            self._unacknowledged = 0
        return True

    def _wait_for(self, link: WorkerLink | None) -> bool:
        """Waits for a worker's next connection and goes on there; False: there is none to wait for."""
        self._dialling = None
        if link is None or self._waits >= _MOST_WAITS:
            return False
        self._waits += 1
        self._waiting = True
        self._fw.spawn(self._go_on(link))
        return True

    async def _go_on(self, link: WorkerLink) -> None:
        try:
            await link.widened()
            await link.connect()
        finally:
            self._waiting = False
        if not self._done and self._route is not None:
            self._tried = tuple(worker for worker in self._tried if worker != link.name)
            self._send(self._fw.router.find(self._route.name) or self._route)

    def _attempt_headers(self) -> Headers:
        if self._deadline is None:
            return self._headers
        left = self._deadline - perf_counter()
        return (*self._headers, (b"grpc-timeout", grpc.format_timeout(left)))

    # --- ends ------------------------------------------------------------------------------------------

    def _response_end(self, headers: Headers, *, only: bool) -> None:
        code = grpc.status_of(headers)
        if code is None:
            http = dict(headers).get(b":status", b"none").decode("ascii", "replace")
            detail = f"worker {self._worker} ended its response without a status (HTTP status {http})"
            self.answer(grpc.INTERNAL, detail)
            return
        refused = code in _RETRYABLE and not self._begun and grpc.NOT_STARTED in headers
        if refused:
            self._fw.suspect(self._worker or "")
            if self._retry(Fault.NOT_STARTED):
                return
        down, stream = self._down, self._stream
        if only:
            down.send_response(stream, headers, True)
        else:
            if not self._begun and self._head is not None:
                down.send_response(stream, self._head, False)
            down.send_trailers(stream, headers)
        down.finish(stream, self._ended, self._left)
        self._leave(ended=True)
        self._finish(code)

    def _fault(self, fault: Fault, code: int, message: str) -> None:
        if self._done or self._retry(fault):
            return
        self.answer(code, message, () if fault.started else (grpc.NOT_STARTED,))

    def _retry(self, fault: Fault) -> bool:
        """Another attempt, if it cannot do harm and somebody is left."""
        route, worker = self._route, self._worker
        if route is None or worker is None:
            return False
        route = self._fw.router.find(route.name) or route
        tried = (*self._tried, worker)
        left = sum(1 for candidate in route.candidates if candidate not in tried)
        # Sent away by a worker that goes on, the only one: it gets the request on its next connection.
        only = not left and len(tried) == 1
        link = self._link if fault is Fault.GOAWAY and only and not self._waits else None
        if not may_retry(
            fault,
            idempotent=self._idempotent and route.idempotent,
            response_begun=self._begun,
            resendable=self._kept is not None,
            untried=left if link is None else 1,
            lost_before=self._lost,
        ):
            return False
        self._lost = self._lost or fault.started
        self._leave(ended=True)
        self._tried = tried
        if link is not None:
            return self._wait_for(link)
        head, self._head = self._head, None
        if not self._attempt(route):
            self._head = head
            return False
        self._fw.metrics.failover(fault.name.lower())
        return True

    def _leave(self, *, ended: bool) -> None:
        """Ends the attempt; `ended` when the worker has."""
        up, worker, route = self._up, self._worker, self._route
        if up is None or worker is None or route is None:
            return
        if ended and self._ended:
            up.release(self._up_stream)
        else:
            up.cancel(self._up_stream, opened_at_flush=self._opened_at_flush, opened_at=self._opened_at)
        self._up = None
        self._worker_seconds = perf_counter() - self._sent_at
        if self._link is not None:
            self._link.in_flight -= 1
        self._fw.router.end(worker, route.name, self._work, self._items)

    def _finish(self, code: int) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop_kept()
        if self._unacknowledged:
            self._down.acknowledge(self._stream, self._unacknowledged)
            self._unacknowledged = 0
        fw = self._fw
        fw.metrics.finished(
            "" if self._route is None else self._route.name,
            code,
            self._worker,
            perf_counter() - self._started,
            self._worker_seconds,
        )

    def _left(self) -> None:
        self._fw.release(self._counted)

    def _expired(self) -> None:
        self._timer = None
        self.answer(grpc.DEADLINE_EXCEEDED, "the deadline has passed")

    def _two_messages(self) -> None:
        self.answer(grpc.UNIMPLEMENTED, "the request holds more than one message; exactly one is accepted")

    # --- the retry buffer ------------------------------------------------------------------------------

    def _keep(self, data: bytes, size: int) -> None:
        fw = self._fw
        if self._up is not None and (
            self._kept_bytes + size > RETRY_REQUEST_BYTES or fw.retained + size > RETRY_PROCESS_BYTES
        ):
            self._drop_kept()
        elif self._kept is not None:
            # Small parts go together: an object each would cost many times their size.
            if size < _SMALL_BYTES and self._kept and len(self._kept[-1]) < _SMALL_BYTES:
                self._kept[-1] += data
            else:
                self._kept.append(data)
            self._kept_bytes += size
            fw.retained += size

    def _drop_kept(self) -> None:
        self._fw.retained -= self._kept_bytes
        self._kept = None
        self._kept_bytes = 0
