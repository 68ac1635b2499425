"""`model.py` of Triton's Python backend: one call of the function for all requests Triton batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from function import compiled  # type: ignore[import-not-found]


class TritonPythonModel:
    """The name and the methods are Triton's."""

    def initialize(self, _arguments: dict[str, str]) -> None:
        self._run = compiled()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        arrays = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        answers = self._run(arrays)
        responses = []
        start = 0
        for array in arrays:
            end = start + len(array)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", answers[start:end])]))
            start = end
        return responses
