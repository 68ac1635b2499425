"""The rows of data-plane.md's RPC table that are not ModelInfer."""

from __future__ import annotations

from multiprocessing import shared_memory
from typing import Any

import grpc
import pytest
from tests.support.target import Target

from reactant_proto import inference_pb2 as pb
from reactant_proto import model_config_pb2 as config_pb

PER_MODEL = {
    "ModelReady": pb.ModelReadyRequest,
    "ModelMetadata": pb.ModelMetadataRequest,
    "ModelConfig": pb.ModelConfigRequest,
    "ModelStatistics": pb.ModelStatisticsRequest,
}
NO_NAMES = ["nope", "../echo", "/etc", "%2e%2e", "echo\0", "Echo", "é" * 100_000]


def call(target: Target, rpc: str, request: Any = None, **fields: Any) -> Any:
    message = getattr(pb, f"{rpc}Request")(**fields) if request is None else request
    return target.client.call(rpc, message).ok()


def test_server(target: Target) -> None:
    assert call(target, "ServerLive").live
    assert call(target, "ServerReady").ready
    metadata = call(target, "ServerMetadata")
    assert metadata.name
    assert metadata.version
    assert {"model_repository", "statistics", "model_configuration"} <= set(metadata.extensions)


@pytest.mark.parametrize("rpc", PER_MODEL)
@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: name[:10])
def test_unknown_model(target: Target, rpc: str, name: str) -> None:
    reply = target.client.call(rpc, PER_MODEL[rpc](name=name))

    assert reply.code is grpc.StatusCode.NOT_FOUND
    assert name[:10] in reply.details
    assert len(reply.details.encode()) <= 1024


@pytest.mark.parametrize("rpc", PER_MODEL)
@pytest.mark.parametrize("version", ["2", "0", "01", "latest"])
def test_unknown_version(target: Target, rpc: str, version: str) -> None:
    reply = target.client.call(rpc, PER_MODEL[rpc](name="echo", version=version))

    assert reply.code is grpc.StatusCode.NOT_FOUND
    assert f"'{version}'" in reply.details


@pytest.mark.parametrize("version", ["", "1"])
def test_model_ready(target: Target, version: str) -> None:
    assert call(target, "ModelReady", name="echo", version=version).ready


def test_metadata(target: Target) -> None:
    metadata = call(target, "ModelMetadata", name="add2")

    assert (metadata.name, list(metadata.versions)) == ("add2", ["1"])
    assert metadata.platform
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("A", "FP32", [-1, 4]),
        ("B", "FP32", [-1, 4]),
    ]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("SUM", "FP32", [-1, 4]),
        ("DIFF", "FP32", [-1, 4]),
    ]


@pytest.mark.parametrize(
    ("model", "inputs", "outputs"),
    [
        ("echo_bytes", [("text", "BYTES", [-1])], [("echo", "BYTES", [-1])]),
        ("unbatched", [("X", "FP32", [3])], [("Y", "FP32", [3])]),
        ("columns", [("X", "FP32", [3, -1])], [("Y", "FP32", [3, -1])]),
        ("variants", [("image", "FP32", [-1, -1, -1])], [("total", "FP32", [-1])]),
        ("params", [("X", "FP32", [-1, 4])], [("Y", "FP32", [-1, 4]), ("told", "BYTES", [-1])]),
    ],
)
def test_metadata_is_what_clients_send_and_get(
    target: Target, model: str, inputs: list[Any], outputs: list[Any]
) -> None:
    metadata = call(target, "ModelMetadata", name=model)

    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == inputs
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == outputs


def test_config(target: Target) -> None:
    config = call(target, "ModelConfig", name="add2").config

    assert config.name == "add2"
    assert config.max_batch_size == 4
    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [
        ("A", config_pb.TYPE_FP32, [4]),
        ("B", config_pb.TYPE_FP32, [4]),
    ]
    assert [(o.name, o.data_type, list(o.dims)) for o in config.output] == [
        ("SUM", config_pb.TYPE_FP32, [4]),
        ("DIFF", config_pb.TYPE_FP32, [4]),
    ]


def test_config_without_a_leading_batch_axis_gives_whole_shapes(target: Target) -> None:
    unbatched = call(target, "ModelConfig", name="unbatched").config
    assert (unbatched.max_batch_size, list(unbatched.input[0].dims)) == (0, [3])

    columns = call(target, "ModelConfig", name="columns").config
    assert (columns.max_batch_size, list(columns.input[0].dims)) == (0, [3, -1])

    text = call(target, "ModelConfig", name="echo_bytes").config
    assert (text.max_batch_size, text.input[0].data_type) == (4, config_pb.TYPE_STRING)


def test_cuda_shared_memory_is_refused_with_a_reason(target: Target) -> None:
    assert not call(target, "CudaSharedMemoryStatus").regions
    reply = target.client.call(
        "CudaSharedMemoryRegister",
        pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=bytes(64), device_id=0, byte_size=64),
    )

    assert reply.code is grpc.StatusCode.UNIMPLEMENTED
    assert "shared memory" in reply.details


def test_trace_settings_report_that_tracing_is_off(target: Target) -> None:
    settings = call(target, "TraceSetting").settings

    assert list(settings["trace_level"].value) == ["OFF"]


def test_trace_settings_that_cannot_be_had_are_refused(target: Target) -> None:
    request = pb.TraceSettingRequest()
    request.settings["trace_level"].value.append("TIMESTAMPS")

    assert target.client.call("TraceSetting", request).code is not grpc.StatusCode.OK
    test_trace_settings_report_that_tracing_is_off(target)


def _log_settings(**settings: Any) -> pb.LogSettingsRequest:
    request = pb.LogSettingsRequest()
    for key, value in settings.items():
        setting = request.settings[key]
        match value:
            case bool():
                setting.bool_param = value
            case int():
                setting.uint32_param = value
            case str():
                setting.string_param = value
    return request


def _verbosity(target: Target, **settings: Any) -> tuple[bool, bool, int]:
    found = call(target, "LogSettings", _log_settings(**settings)).settings
    return (
        found["log_info"].bool_param,
        found["log_warning"].bool_param,
        found["log_verbose_level"].uint32_param,
    )


def test_log_settings_are_read_and_set(target: Target) -> None:
    before = _verbosity(target)
    try:
        assert _verbosity(target, log_verbose_level=1)[2] >= 1
        assert _verbosity(target)[2] >= 1
        assert _verbosity(target, log_verbose_level=0) == (True, True, 0)
        assert _verbosity(target, log_info=False) == (False, True, 0)
        assert _verbosity(target) == (False, True, 0)
        assert _verbosity(target, log_warning=False) == (False, False, 0)
        assert _verbosity(target, log_info=True, log_warning=True) == (True, True, 0)
    finally:
        _verbosity(target, log_info=before[0], log_warning=before[1], log_verbose_level=before[2])


@pytest.mark.parametrize(
    "settings",
    [{"log_infos": True}, {"log_info": "yes"}, {"log_verbose_level": True}, {"log_file": "/etc/passwd"}],
    ids=["unknown", "text", "bool", "file"],
)
def test_log_settings_that_are_wrong(target: Target, settings: dict[str, Any]) -> None:
    before = _verbosity(target)

    reply = target.client.call("LogSettings", _log_settings(**settings))

    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    assert next(iter(settings)) in reply.details
    assert _verbosity(target) == before


def test_same_ipc_namespace(target: Target) -> None:
    segment = shared_memory.SharedMemory(create=True, size=16)
    name = segment.name.removeprefix("/")
    try:
        assert call(target, "IsSameIPCNamespace", name=f"/{name}").same
        assert call(target, "IsSameIPCNamespace", name=name).same
    finally:
        segment.close()
        segment.unlink()

    assert not call(target, "IsSameIPCNamespace", name=f"/{name}").same


@pytest.mark.parametrize(
    "name", ["", "/", "//", "..", "/..", "../etc/passwd", "/../../etc/passwd", "a/b", "x\0y", "x" * 300]
)
def test_same_ipc_namespace_of_what_is_no_object(target: Target, name: str) -> None:
    assert not call(target, "IsSameIPCNamespace", name=name).same


def test_all_rpcs_of_a_storm_are_answered(target: Target) -> None:
    """Every cheap RPC many times at once over one connection."""
    pending = [
        target.client.start(rpc, request)
        for _ in range(50)
        for rpc, request in (
            ("ServerLive", pb.ServerLiveRequest()),
            ("ServerReady", pb.ServerReadyRequest()),
            ("ServerMetadata", pb.ServerMetadataRequest()),
            ("ModelMetadata", pb.ModelMetadataRequest(name="echo")),
            ("ModelConfig", pb.ModelConfigRequest(name="echo")),
            ("ModelStatistics", pb.ModelStatisticsRequest()),
            ("RepositoryIndex", pb.RepositoryIndexRequest()),
        )
    ]

    for one in pending:
        one.reply().ok()
    target.assert_well()
