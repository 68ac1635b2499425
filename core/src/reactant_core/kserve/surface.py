"""What a server says of itself, and the answers that are the same wherever they are asked."""

from __future__ import annotations

from typing import Final

from reactant_core.errors import ModelNotFound, Unimplemented
from reactant_proto import inference_pb2 as pb

SERVER_NAME: Final = "reactantserver"
EXTENSIONS: Final = (
    "model_configuration",
    "model_repository",
    "statistics",
    "parameters",
    "logging",
    "system_shared_memory",
)

MODEL_VERSION: Final = "1"
"""The only version a model has; requests may also leave it empty."""

NOT_LOADED: Final = "not loaded"
"""How the index's reason begins for a bundle that is on disk only: to every other RPC it is unknown."""

UNKNOWN_REGION_KEY: Final = "reactant-unknown-region"
"""Trailer of a NOT_FOUND that means a shared-memory region, not a model; its value is the name."""

NO_CUDA_SHARED_MEMORY: Final = "CUDA shared memory is not offered; register system shared memory instead"


def unknown_model(name: str) -> ModelNotFound:
    """The error for a name that no model has."""
    return ModelNotFound(f"model '{name}' is not found", not_started=True)


def unknown_region(name: str, what: str = "") -> ModelNotFound:
    """The error for a region nobody registered; `what` begins the message."""
    # The name travels in a header, which takes printable ASCII only and not much of it.
    header = name.encode("unicode_escape").decode("ascii")[:256]
    return ModelNotFound(
        f"{what}shared-memory region '{name}' is not registered", trailers=((UNKNOWN_REGION_KEY, header),)
    )


def trace_settings(request: pb.TraceSettingRequest) -> pb.TraceSettingResponse:
    """Says that tracing is off; raises Unimplemented for an attempt to turn it on."""
    if any(value.value for value in request.settings.values()):
        raise Unimplemented("tracing is not offered; trace settings can only be read")
    response = pb.TraceSettingResponse()
    response.settings["trace_level"].value.append("OFF")
    return response
