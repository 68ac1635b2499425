"""Other stubs of package `inference` may be imported before or after ours, in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

OURS = "from reactant_proto import POOL, inference_pb2, inference_pb2_grpc"
TRITON = "import tritonclient.grpc as triton_grpc; from tritonclient.grpc import service_pb2 as theirs"

# What a second client, such as KServe's, does: the same names in a file of another name. Beside Triton's it
# cannot be loaded; beside ours it must.
KSERVE = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="grpc_predict_v2.proto", package="inference", syntax="proto3")
file.message_type.add(name="ModelInferRequest").field.add(
    name="model_name", number=1, label="LABEL_OPTIONAL", type="TYPE_STRING"
)
descriptor = descriptor_pool.Default().Add(file)
class theirs:
    ModelInferRequest = message_factory.GetMessageClass(
        descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")
    )
"""

CHECK = """
ours = inference_pb2.ModelInferRequest(model_name="m")
assert theirs.ModelInferRequest is not inference_pb2.ModelInferRequest
assert theirs.ModelInferRequest.FromString(ours.SerializeToString()).model_name == "m"
data = theirs.ModelInferRequest(model_name="n").SerializeToString()
assert inference_pb2.ModelInferRequest.FromString(data).model_name == "n"
from google.protobuf import descriptor_pool
assert descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest") is not ours.DESCRIPTOR
assert POOL.FindMessageTypeByName("inference.ModelInferRequest") is ours.DESCRIPTOR
"""

ALONE = """
from google.protobuf import descriptor_pool, symbol_database
for name in ("inference.ModelInferRequest", "inference.ModelConfig"):
    try:
        descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        continue
    raise AssertionError(name)
assert not [d.full_name for d in symbol_database.Default()._classes if d.full_name.startswith("inference.")]
"""


def run(*parts: str, implementation: str) -> None:
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    confirm = (
        "from google.protobuf.internal import api_implementation\n"
        f"assert api_implementation.Type() == {implementation!r}"
    )
    program = "\n".join(textwrap.dedent(part) for part in (*parts, confirm))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("order", [(OURS, TRITON), (TRITON, OURS)], ids=["ours first", "ours last"])
def test_beside_tritons_client(order: tuple[str, str], implementation: str) -> None:
    run(*order, CHECK, implementation=implementation)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(OURS, KSERVE), (KSERVE, OURS)], ids=["ours first", "ours last"])
def test_beside_another_file_of_the_package(order: tuple[str, str]) -> None:
    run(*order, CHECK, implementation="upb")


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_alone_leaves_the_default_pool_empty(implementation: str) -> None:
    run(OURS, ALONE, implementation=implementation)
