"""ModelInfer without a coroutine: requests that came together are admitted and queued in one go.

For models without code of their own, and for requests of a form that was checked before (`forms`); whatever
else there is to say about a request, an error above all, is left to the ordinary way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final

from reactant_core.clock import Clock
from reactant_core.errors import ServingError
from reactant_core.kserve.stream import STREAM_KEY
from reactant_core.logs import get_logger
from reactant_core.rpc.direct import DirectCall
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Outcome, Submission
from reactant_worker.metrics import WorkerMetrics
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.rpc.admission import Admission
from reactant_worker.rpc.counted import CountedInfer
from reactant_worker.rpc.forms import Form, Forms, split
from reactant_worker.rpc.infer import check_size, count_success, of_model, out_of_time
from reactant_worker.rpc.parameters import soonest

_log = get_logger(__name__)


@final
class DirectInfer:
    """Takes calls of ModelInfer on the event loop; a `Taker`."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        admission: Admission,
        bridge: EngineBridge,
        counted: CountedInfer,
        metrics: WorkerMetrics,
        clock: Clock,
        max_response_bytes: int,
    ) -> None:
        self._forms = Forms(catalog)
        self.admission = admission
        self.bridge = bridge
        self.counted = counted
        self.metrics = metrics
        self.clock = clock
        self.max_response_bytes = max_response_bytes

    def __call__(self, calls: Sequence[DirectCall]) -> None:
        """See `Taker`."""
        now = self.clock.monotonic()
        rooms: dict[Entry, int] = {}
        for call in calls:
            self._offer(call, now, rooms)

    def _offer(self, call: DirectCall, now: float, rooms: dict[Entry, int]) -> None:
        """Takes a call, or leaves it as it was. `rooms` is what queues took when this burst began, less what
        it brought them: they may have more room by now, which the ordinary way sees."""
        message = call.payload
        parts = split(message)
        if parts is None:
            return
        key, id_field, raws = parts
        form = self._forms.find(key, message)
        # An id that is text for sure; its field has a length of one byte then.
        if form is None or not id_field.isascii():
            return
        inputs = form.arrays(message, raws)
        if inputs is None:
            return
        for name, _ in call.metadata:
            if name == STREAM_KEY:
                return
        seconds = call.seconds_remaining
        timeout = soonest(form.timeout_seconds, seconds)
        entry = form.entry
        room = rooms.get(entry)
        if room is None:
            room = self.admission.room(entry)
        if room <= 0 or (timeout is not None and timeout <= 0) or not self.admission.admits():
            return
        rooms[entry] = room - 1
        self.admission.enter()
        entry.hold(form.model)
        deadline = None if timeout is None else now + timeout
        submission = Submission(form.model.key, inputs, form.rows, form.variant, now, deadline)
        waiting = _Waiting(self, call, form, id_field, submission)
        call.take(waiting.leave)
        if timeout is not None:
            waiting.limit = asyncio.get_running_loop().call_later(timeout, waiting.expire)
        self.bridge.send(submission, waiting)


@final
class _Waiting:
    """A request that was taken; a `Waiter`. It ends once: with its outcome, at its deadline, or left."""

    __slots__ = ("_call", "_ended", "_form", "_id_field", "_of", "_submission", "limit")

    def __init__(
        self, of: DirectInfer, call: DirectCall, form: Form, id_field: bytes, submission: Submission
    ) -> None:
        self._of = of
        self._call = call
        self._form = form
        self._id_field = id_field
        self._submission = submission
        self._ended = False
        self.limit: asyncio.TimerHandle | None = None

    def settle(self, outcome: Outcome) -> bool:
        """See `Waiter.settle`."""
        if self._ended:
            return False
        of, form = self._of, self._form
        entry, name, started = form.entry, form.model.name, self._submission.arrived
        try:
            if isinstance(outcome, ServingError):
                raise of_model(name, outcome, begun=False)
            payload = form.response.encode(self._id_field, outcome.outputs)
            check_size(name, len(payload), of.max_response_bytes)
            count_success(entry, of.metrics, of.clock.monotonic() - started, form.rows, outcome)
            of.counted.succeeded(name, self._request_id, started)
        except ServingError as error:
            self._fail(error)
        except Exception as error:
            self._end()
            self._call.fail(of.counted.broke(name, self._request_id, error, started))
        else:
            self._end()
            self._call.respond(payload)
        return True

    def expire(self) -> None:
        """Its deadline has passed."""
        self._of.bridge.withdraw(self._submission)
        self._fail(out_of_time(self._form.model.name))

    def leave(self) -> None:
        """Nobody waits for an answer any more."""
        started, seconds = self._submission.arrived, self._call.seconds_remaining
        self._of.bridge.withdraw(self._submission)
        self._end()
        remaining = None if seconds is None else started + seconds - self._of.clock.monotonic()
        self._of.counted.left(self._form.model.name, self._request_id, remaining, started)

    @property
    def _request_id(self) -> str:
        # Behind a tag and a length.
        return self._id_field[2:].decode("ascii")

    def _fail(self, error: ServingError) -> None:
        self._end()
        self._of.counted.failed(self._form.model.name, self._request_id, error, self._submission.arrived)
        self._call.fail(error)

    def _end(self) -> None:
        self._ended = True
        if self.limit is not None:
            self.limit.cancel()
        self._of.admission.leave()
        self._form.entry.release(self._form.model)
