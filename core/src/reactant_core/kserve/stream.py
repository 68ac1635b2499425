"""ModelStreamInfer: what each of its messages carries, wherever it is answered."""

from __future__ import annotations

from typing import Final

from reactant_proto import inference_pb2 as pb

MAX_OUTSTANDING: Final = 32
"""Requests of one stream in work at a time; the next message waits until one is answered."""

STREAM_KEY: Final = "reactant-stream"
"""Request metadata of a ModelInfer that answers a message of a stream, value `1`: the response is final."""

_FINAL_RESPONSE: Final = "triton_final_response"


def mark_final(response: pb.ModelInferResponse) -> None:
    """States that no further response to the request follows."""
    response.parameters[_FINAL_RESPONSE].bool_param = True


def in_band_error(model: str, request_id: str, message: str) -> pb.ModelStreamInferResponse:
    """The answer to a message of a stream that failed; the stream goes on."""
    answer = pb.ModelStreamInferResponse(error_message=message)
    answer.infer_response.model_name = model
    answer.infer_response.id = request_id
    mark_final(answer.infer_response)
    return answer
