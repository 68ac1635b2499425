"""What tests of the direct way share: a model without code, its requests, a transport and an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.bundle.manifest import TensorSpec
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine.port import Submission
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.served import ServedModel


def spec(name: str, datatype: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, BY_KSERVE[datatype], "nab"[: len(dims)], dims, 0)


X, N, Y = spec("x", "FP32", -1, 2), spec("n", "INT64", -1), spec("y", "FP32", -1, 2)


def version(key: str = "k", **changes: Any) -> ServedModel:
    """A version of `m`, which takes `x` FP32 [-1, 2] and `n` INT64 [-1] and gives `y` FP32 [-1, 2]."""
    attributes = {
        "key": key,
        "name": "m",
        "meta": False,
        "hooks": None,
        "calls": (),
        "client_inputs": {"x": X, "n": N},
        "client_outputs": {"y": Y},
        "executable_inputs": (N, X),
        "executable_outputs": (Y,),
        "sizes": (1, 4),
        "pads": True,
        "variant_of": lambda _inputs: None,
        "bundle": SimpleNamespace(manifest=SimpleNamespace(internal=False)),
    }
    return cast(ServedModel, SimpleNamespace(**attributes | changes))


def serving(model: ServedModel) -> tuple[Catalog, Entry]:
    catalog = Catalog()
    entry = catalog.begin("m")
    catalog.ready(entry, model)
    return catalog, entry


def request(rows: int = 2, *, request_id: str = "", start: float = 0.0) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id=request_id)
    x: NDArray[Any] = np.arange(start, start + 2 * rows, dtype=np.float32)
    message.inputs.add(name="x", datatype="FP32", shape=[rows, 2])
    message.inputs.add(name="n", datatype="INT64", shape=[rows])
    message.raw_input_contents.extend([x.tobytes(), np.arange(rows, dtype=np.int64).tobytes()])
    return message


@final
class Front:
    """The transport: what it was told by call."""

    def __init__(self) -> None:
        self.answers: dict[int, pb.ModelInferResponse] = {}
        self.failures: dict[int, tuple[int, str, list[tuple[str, str]]]] = {}

    def respond(self, call_id: int, payload: bytes) -> bool:
        self.answers[call_id] = pb.ModelInferResponse.FromString(payload)
        return True

    def fail(self, call_id: int, code: int, message: str, trailing_metadata: list[tuple[str, str]]) -> bool:
        self.failures[call_id] = (code, message, trailing_metadata)
        return True


@final
class Engine:
    """Holds what it is given."""

    def __init__(self) -> None:
        self.held: list[Submission] = []

    def submit(self, submissions: list[Submission]) -> None:
        self.held += submissions

    def cancel(self, submission: Submission) -> bool:
        if submission not in self.held:
            return False
        self.held.remove(submission)
        return True

    def depth(self, _model: str) -> int:
        return len(self.held)

    def busy(self) -> bool:
        return bool(self.held)

    def delivered(self, seconds: float) -> None:
        assert seconds >= 0
