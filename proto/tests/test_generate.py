"""The generator: committed output is current, drift is named, a new .proto file needs nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DIST = Path(__file__).resolve().parents[1]

# A nested package and protobuf's own types, both of which control messages will want.
EVENT = """
syntax = "proto3";
package reactant.worker.v1;
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "reactant_proto/inference.proto";
message Event {
  google.protobuf.Timestamp at = 1;
  google.protobuf.Struct detail = 2;
  inference.InferParameter parameter = 3;
}
service Events {
  rpc Watch(Event) returns (stream Event) {}
}
"""

USE_EVENT = """
import datetime
from google.protobuf import timestamp_pb2
from reactant_proto import POOL, inference_pb2
from reactant_proto.worker.v1 import event_pb2, event_pb2_grpc
noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
event = event_pb2.Event(parameter=inference_pb2.InferParameter(int64_param=1))
event.at.FromDatetime(noon)
event.detail.update({"a": [1, None]})
again = event_pb2.Event.FromString(event.SerializeToString())
assert again == event and again.at.ToDatetime(datetime.UTC) == noon
assert list(again.detail["a"]) == [1, None]
assert timestamp_pb2.Timestamp.FromString(event.at.SerializeToString()).ToDatetime(datetime.UTC) == noon
assert event_pb2.Event.DESCRIPTOR.file.pool is POOL
assert hasattr(event_pb2_grpc, "EventsServicer")
"""


def generator(source: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DIST / "generate.py"), "--source", str(source), *flags]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    shutil.copytree(DIST / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


@pytest.mark.slow
def test_committed_modules_are_current() -> None:
    result = subprocess.run(
        [sys.executable, str(DIST / "generate.py"), "--check"], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
def test_drift_is_named_and_repaired(source: Path) -> None:
    package = source / "reactant_proto"
    before = {path.name: path.read_bytes() for path in package.glob("*_pb2*")}
    (package / "model_config_pb2.pyi").unlink()
    (package / "gone_pb2.py").write_text("")
    with (package / "inference_pb2_grpc.py").open("a") as module:
        module.write("edited = True\n")

    checked = generator(source, "--check")
    assert checked.returncode == 1
    assert "model_config_pb2.pyi: missing" in checked.stderr
    assert "gone_pb2.py: no .proto file makes it" in checked.stderr
    assert "inference_pb2_grpc.py: out of date" in checked.stderr
    assert "-edited = True" in checked.stderr
    assert "inference_pb2.py:" not in checked.stderr
    assert (package / "gone_pb2.py").exists()

    assert generator(source).returncode == 0
    assert {path.name: path.read_bytes() for path in package.glob("*_pb2*")} == before


@pytest.mark.slow
def test_new_file_in_a_nested_package_with_well_known_types(source: Path) -> None:
    folder = source / "reactant_proto" / "worker" / "v1"
    folder.mkdir(parents=True)
    (folder / "event.proto").write_text(EVENT)
    assert generator(source, "--check").returncode == 1
    assert generator(source).returncode == 0
    made = {path.name for path in folder.iterdir()}
    assert made == {"event.proto", "event_pb2.py", "event_pb2.pyi", "event_pb2_grpc.py", "event_pb2_grpc.pyi"}
    for implementation in ("upb", "python"):
        environment = os.environ | {
            "PYTHONPATH": str(source),
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation,
        }
        used = subprocess.run(
            [sys.executable, "-W", "error", "-c", USE_EVENT], env=environment, capture_output=True, text=True
        )
        assert used.returncode == 0, used.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('syntax = "proto3"; message M { string a = 1; string b = 1; }', "bad.proto:1:"),
        (
            'syntax = "proto3"; import "google/protobuf/any.proto";',
            "bad.proto: import google/protobuf/any.proto",
        ),
        ('syntax = "proto2"; message M { optional string a = 1; }', "bad.proto: syntax must be proto3"),
    ],
)
def test_a_bad_file_changes_nothing(source: Path, text: str, complaint: str) -> None:
    (source / "reactant_proto" / "bad.proto").write_text(text)
    made = generator(source)
    assert made.returncode == 1
    assert complaint in made.stderr
    assert "Traceback" not in made.stderr
    assert not (source / "reactant_proto" / "bad_pb2.py").exists()
