"""Nodes that must not start, and devices as they are handed on (case M5)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.node_process import MakeNode, NodeProcess, assert_gone, environ_of
from tests.support.process import HOST

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

UUIDS = ("GPU-8f6ae9c1-7f3e-4b0e-9d2b-000000000001", "MIG-5d4ab1c2-1111-5222-8333-000000000002")
NO_DEVICE_HERE = {
    "INFERENCE_SERVER_RUNTIME_BACKEND": "auto",
    "INFERENCE_SERVER_RUNTIME_ALLOW_CPU_FALLBACK": "true",
}


@pytest.fixture
def taken(make_node: MakeNode) -> Iterator[NodeProcess]:
    """A node two of whose ports somebody else has."""
    node = make_node(workers=2)
    with ExitStack() as stack:
        for port in (node.ports.grpc, node.ports.metrics_base + 1):
            stack.enter_context(socket.create_server((HOST, port)))
        yield node


def test_ports_that_are_taken_are_all_said_before_anything_starts(taken: NodeProcess) -> None:
    with taken:
        assert taken.server.wait() == 1
    for port, setting in (
        (taken.ports.grpc, "REACTANT_PUBLIC_PORT"),
        (taken.ports.metrics_base + 1, "REACTANT_METRICS_BASE_PORT"),
    ):
        (error,) = (error for error in taken.errors() if f":{port}" in error)
        assert setting in error
    assert len(taken.errors()) == 2
    assert taken.said(" started", "supervisor") == 0
    assert {name for name, _ in taken.lines()} == {"supervisor"}
    assert not taken.run_dir.exists()


def test_every_fault_of_the_configuration_is_said(start: MakeNode) -> None:
    node = start(
        environ={
            "REACTANT_BASE_PORT": "http",
            "REACTANT_CPU_WORKRS": "2",
            "INFERENCE_SERVER_RUNTIME_BACKEND": "tpu",
            "INFERENCE_SERVER_RUNTIME_MEM_FRACTION": "7",
        }
    )
    assert node.server.wait() == 78
    text = str(list(node.events()))
    for name in (
        "REACTANT_BASE_PORT",
        "REACTANT_CPU_WORKRS",
        "REACTANT_CPU_WORKERS",
        "INFERENCE_SERVER_RUNTIME_BACKEND",
        "INFERENCE_SERVER_RUNTIME_MEM_FRACTION",
    ):
        assert name in text
    assert {name for name, _ in node.lines()} == {"supervisor"}
    assert not node.run_dir.exists()


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        ("0,junk", "'junk' is no device"),
        ("-1", "'-1' is no device"),
        ("1,1", "'1' is listed twice"),
        ("GPU-", "'GPU-' is no device"),
        (",", "accepted is auto, a count, or a list of ordinals and GPU-… or MIG-… identifiers"),
    ],
)
def test_m5_what_is_no_device_is_refused(start: MakeNode, gpus: str, sentence: str) -> None:
    node = start(environ={"REACTANT_GPUS": gpus})
    assert node.server.wait() == 78
    (error,) = node.errors()
    assert "REACTANT_GPUS" in error
    assert sentence in error


@pytest.mark.parametrize(
    ("environ", "expected", "note"),
    [
        pytest.param({"REACTANT_GPUS": ",".join(UUIDS)}, UUIDS, "", id="uuids"),
        pytest.param({"REACTANT_GPUS": "1,0", "CUDA_VISIBLE_DEVICES": "5"}, ("1", "0"), "", id="order"),
        pytest.param(
            {"REACTANT_GPUS": "", "CUDA_VISIBLE_DEVICES": "MIG-5d4a,GPU-8f6a,junk,3"},
            ("MIG-5d4a", "GPU-8f6a"),
            "ends at 'junk,3'",
            id="visible",
        ),
    ],
)
def test_m5_selectors_are_handed_on_as_they_are(
    start: MakeNode, environ: dict[str, str], expected: tuple[str, ...], note: str
) -> None:
    """Seen in each worker's environment; whether there is such a device is not the supervisor's business."""
    node = start(environ={**NO_DEVICE_HERE, **environ})
    eventually_sync(lambda: node.said("gateway started", "supervisor"), 30)
    seen = {name: environ_of(pid) for name, pid in node.pids().items()}
    assert [seen[f"worker{n}"]["CUDA_VISIBLE_DEVICES"] for n in range(2)] == list(expected)
    assert all(seen[f"worker{n}"]["INFERENCE_SERVER_RUNTIME_DEVICE_ORDINAL"] == "0" for n in range(2))
    warnings = [event for event in node.events("supervisor") if event["level"] == "warning"]
    assert [note in str(warning) for warning in warnings] == ([True] if note else [])
    # Stopped in the middle of its start.
    assert node.stop() == 0, node.server.tail()
    assert_gone(node)
