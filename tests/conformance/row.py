"""One row of the ModelInfer table: what is sent, and what must come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import grpc
import numpy as np
from numpy.typing import NDArray
from tests.support.client import Reply
from tests.support.messages import arrays

from reactant_core.errors import MESSAGE_LIMIT_BYTES
from reactant_proto import inference_pb2 as pb

Code = grpc.StatusCode
Outputs = Mapping[str, NDArray[Any]]
NOT_STARTED: Mapping[str, str] = {"reactant-not-started": "1"}


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One request and the answer it must get.

    Attributes:
        id: names the row; begins with the id of the case it comes from, where there is one.
        request: makes the message.
        code: the status.
        names: what the error text must contain.
        trailers: the `reactant-` trailers, exactly.
        outputs: the outputs of an OK answer, in order, exactly; None leaves them to `check`.
        check: looks at the response of an OK answer.
    """

    id: str
    request: Callable[[], pb.ModelInferRequest]
    code: Code = Code.OK
    names: tuple[str, ...] = ()
    trailers: Mapping[str, str] = field(default_factory=dict)
    outputs: Outputs | None = None
    check: Callable[[pb.ModelInferResponse], None] | None = None

    def verify(self, reply: Reply, request: pb.ModelInferRequest) -> None:
        """Asserts that the reply is this row's."""
        assert reply.code is self.code, f"{reply.code.name}: {reply.details}"
        assert reply.trailers == self.trailers
        if self.code is not Code.OK:
            missing = [name for name in self.names if name not in reply.details]
            assert not missing, f"{missing} not in: {reply.details}"
            assert len(reply.details.encode()) <= MESSAGE_LIMIT_BYTES
            assert "Traceback" not in reply.details
            assert ".py" not in reply.details
            return
        response = reply.ok()
        assert response.id == request.id
        assert response.model_name == request.model_name
        assert response.model_version == "1"
        if self.outputs is not None:
            assert_outputs(response, self.outputs)
        if self.check is not None:
            self.check(response)


def assert_outputs(response: pb.ModelInferResponse, expected: Outputs) -> None:
    """The response holds exactly these outputs in this order: names, dtypes, shapes, every bit."""
    found = arrays(response)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        if array.dtype == np.object_:
            assert list(found[name].ravel()) == list(array.ravel()), name
        else:
            assert found[name].tobytes() == array.tobytes(), name


def refused(id: str, request: Callable[[], pb.ModelInferRequest], *names: str) -> Row:  # noqa: A002
    """A row whose answer is INVALID_ARGUMENT."""
    return Row(id, request, Code.INVALID_ARGUMENT, names)


def served(
    id: str,  # noqa: A002
    request: Callable[[], pb.ModelInferRequest],
    outputs: Outputs | None = None,
    check: Callable[[pb.ModelInferResponse], None] | None = None,
) -> Row:
    """A row whose answer is OK."""
    return Row(id, request, outputs=outputs, check=check)
