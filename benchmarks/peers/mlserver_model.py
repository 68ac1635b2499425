"""MLServer's custom runtime; its adaptive batching has put requests together before `predict`."""

from __future__ import annotations

from typing import Any

from function import compiled  # type: ignore[import-not-found]
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceResponse  # type: ignore[import-not-found]


class Model(MLModel):  # type: ignore[misc]
    """The base class and the methods are MLServer's."""

    async def load(self) -> bool:
        self._run = compiled()
        return True

    async def predict(self, payload: Any) -> Any:
        answer = self._run([NumpyCodec.decode_input(payload.inputs[0])])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", answer)])
