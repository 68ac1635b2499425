"""The supervisor itself is killed, and the node started again at once (cases M7, S5)."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import grpc
import pytest
from tests.support.client import Client
from tests.support.messages import Input, echo, floats, infer
from tests.support.node_load import Load
from tests.support.node_process import MakeNode, NodeProcess

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

SHM = Path("/dev/shm")
ORPHAN_SECONDS = 1.0


def test_m7_nothing_outlives_it_and_the_next_has_its_ports(start: MakeNode, make_node: MakeNode) -> None:
    first = start(workers=2)
    first.wait_complete()
    path = SHM / f"node-test-{uuid4().hex}"
    path.write_bytes(floats(1).tobytes())
    region = "left behind"
    try:
        with Client(first.address) as client:
            register = pb.SystemSharedMemoryRegisterRequest(name=region, key=f"/{path.name}", byte_size=16)
            client.call("SystemSharedMemoryRegister", register).ok()
            # Connections are open and requests on their way.
            with Load(first.address, ["repeatable"], deadline=5.0) as load:
                load.go_on(0.5)
                assert first.processes().keys() >= {first.pid, *first.pids().values()}
                first.die()
                eventually_sync(lambda: not first.processes(), ORPHAN_SECONDS, what="no orphan is left")

        second = start_where(first, make_node)
        with second:
            second.wait_ready()
            with Client(second.address) as client:
                client.infer(echo()).ok()
                assert_unknown(client, region)
            assert second.stop() == 0
        # What the first could not remove the second has, but for the directory, which it found there.
        assert not second.processes()
        assert not list(second.run_dir.iterdir())
        assert second.said("is another node's") == 0
    finally:
        path.unlink()


def start_where(node: NodeProcess, make_node: MakeNode) -> NodeProcess:
    """A node on the same ports and in the same run directory."""
    return make_node(workers=2, ports=node.ports, folder=node.run_dir.parent)


def assert_unknown(client: Client, region: str) -> None:
    """After a restart of the whole node a region has to be registered anew, which the answer says."""
    status = client.call("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()).ok()
    assert not status.regions
    shared = Input(
        "X", "FP32", [1, 4], parameters={"shared_memory_region": region, "shared_memory_byte_size": 16}
    )
    reply = client.infer(infer("echo", shared))
    assert reply.code is grpc.StatusCode.NOT_FOUND
    assert reply.trailers == {"reactant-unknown-region": region}
