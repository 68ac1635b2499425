"""What a meta's `run` gets as `call`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, SupportsIndex, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reactant_core.clock import Clock
from reactant_core.errors import InternalError, InvalidArgument, ServingError
from reactant_core.logs import get_logger
from reactant_worker.engine.port import Arrays, Submission
from reactant_worker.metas.scratch import Lease
from reactant_worker.metas.stages import Stages
from reactant_worker.models import steps
from reactant_worker.models.hooks import RUN, HookRequest, RequestOver
from reactant_worker.models.served import ServedModel
from reactant_worker.models.tensors import as_bytes, check_array, check_names

_log = get_logger(__name__)


@final
class Call:
    """Calls models for one request of a meta; one call at a time, whichever thread makes it.

    Attributes:
        Refused: raised when a hook of the called model refuses its inputs. Left alone it ends the request
            with INVALID_ARGUMENT: it is about data, and the data came from the client.
    """

    Refused = InvalidArgument

    def __init__(
        self, meta: ServedModel, request: HookRequest, *, stages: Stages, lease: Lease, clock: Clock
    ) -> None:
        self._meta = meta
        self._request = request
        self._stages = stages
        self._lease = lease
        self._clock = clock
        self._turn = threading.Lock()
        self._begun = False

    def __call__(self, model: str, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Runs a model on `inputs` as a client's request would, and waits; its outputs by name.

        Arrays go in and come out by reference. Inputs must stay as they are until it returns; outputs may
        be read-only. Its hooks run on this thread, with this request's id, parameters and deadline.

        Raises:
            Refused: a hook of the model refused the inputs.
            InternalError: the meta called wrongly, or a hook or the program of the model failed.
            ModelUnavailable: the model is not READY.
            RequestOver: the client has its answer already, or the deadline has passed.
        """
        with self._turn:
            self._check_time()
            try:
                if model not in self._meta.calls:
                    declared = ", ".join(f"'{name}'" for name in self._meta.calls) or "none"
                    raise self._misused(f"calls '{model}', but meta.calls of its manifest lists {declared}")
                served = self._stages.begin(model)
                try:
                    return self._stage(served, inputs)
                finally:
                    self._stages.finish()
            except ServingError as error:
                raise type(error)(f"model '{self._meta.name}': {error.message}") from None

    def scratch(
        self, shape: Iterable[SupportsIndex] | SupportsIndex, dtype: DTypeLike = "float32"
    ) -> NDArray[Any]:
        """A buffer that is this request's until its answer is sent; its values are whatever they are."""
        return self._lease.array(shape, dtype)

    def _check_time(self) -> None:
        deadline = self._request.deadline
        if self._stages.stopped or (deadline is not None and self._clock.monotonic() >= deadline):
            raise RequestOver

    def _stage(self, model: ServedModel, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        hooks = model.hooks
        rows = None
        with self._about_inputs():
            tensors = _arguments(model, inputs)
            if hooks is not None and hooks.preprocess is not None:
                rows = steps.client_rows(model, tensors)
        if hooks is not None and hooks.preprocess is not None:
            tensors = steps.preprocess(model, tensors, self._request)
        with self._about_inputs():
            prepared = steps.prepare(model, tensors, rows)
        outputs = steps.named_outputs(model, self._run(model, prepared))
        if hooks is not None and hooks.postprocess is not None:
            self._check_time()
            outputs = steps.postprocess(model, outputs, self._request)
            for name, spec in model.client_outputs.items():
                if spec.dtype.kserve == "BYTES":
                    outputs[name] = _only_bytes(f"model '{model.name}': output '{name}'", outputs[name])
        return outputs

    def _run(self, model: ServedModel, prepared: steps.Prepared) -> Arrays:
        if not prepared.rows:
            return steps.empty_outputs(model, prepared.variant)
        submission = Submission(
            model.key,
            prepared.inputs,
            prepared.rows,
            prepared.variant,
            self._clock.monotonic(),
            self._request.deadline,
            # The first is what the discipline decides about: metas that went ahead from their first call on
            # would leave the device to nobody else.
            committed=self._begun,
        )
        try:
            outputs = self._stages.execute(submission).outputs
        except ServingError as error:
            # The engine does not know the model's name.
            raise type(error)(f"model '{model.name}': {error.message}") from None
        self._begun = True
        return outputs

    @contextmanager
    def _about_inputs(self) -> Iterator[None]:
        """Wrong inputs are a client's fault where a client sends them, and here the meta's."""
        try:
            yield
        except (InvalidArgument, InternalError) as error:
            raise self._misused(error.message) from None

    def _misused(self, reason: str) -> InternalError:
        # The client is told, but it is the meta's author who has to see it.
        _log.error("hook failed", model=self._meta.name, hook=RUN, request=self._request.id, reason=reason)
        return InternalError(reason)


def _arguments(model: ServedModel, inputs: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(inputs, Mapping):
        kind = type(inputs).__name__
        raise InternalError(f"model '{model.name}': was given {kind}, expected a dict of name to array")
    check_names(f"model '{model.name}': was given", inputs, model.client_inputs.values())
    arrays = {}
    for name, spec in model.client_inputs.items():
        what = f"model '{model.name}': input '{name}'"
        array = check_array(f"{what} was given", spec, inputs[name])
        arrays[name] = _only_bytes(what, array) if spec.dtype.kserve == "BYTES" else array
    return arrays


def _only_bytes(what: str, array: NDArray[Any]) -> NDArray[Any]:
    """BYTES as the wire would bring them: text becomes UTF-8. Raises InternalError for other elements."""
    if all(type(element) is bytes for element in array.flat):
        return array
    plain = np.empty(array.size, np.object_)
    plain[:] = [as_bytes(what, element) for element in array.flat]
    return plain.reshape(array.shape)
