"""Cases S1 to S3 and S5 at the level of the table; tests/conformance runs them over gRPC."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reactant_core.errors import AlreadyExists, InvalidArgument, ModelNotFound
from reactant_proto import inference_pb2 as pb
from reactant_worker.rpc.regions import Regions, Window

SIZE = 4096


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    (folder / "object").write_bytes(bytes(range(256)) * (SIZE // 256))
    return folder


@pytest.fixture
def regions(root: Path) -> Regions:
    return Regions(root)


def names(regions: Regions) -> set[str]:
    return {region.name for region in regions}


def test_s1_a_name_is_taken_until_it_is_unregistered(regions: Regions) -> None:
    regions.register("R", "/object", 0, 64)
    with pytest.raises(AlreadyExists, match="'R' is already registered"):
        regions.register("R", "/object", 0, 64)
    with pytest.raises(AlreadyExists):
        regions.register("R", "/other", 0, 64)
    regions.register("S", "object", 32, 64)
    regions.unregister("unknown")
    assert names(regions) == {"R", "S"}
    regions.unregister("R")
    regions.register("R", "/object", 0, 64)
    regions.unregister("")
    assert names(regions) == set()
    with pytest.raises(ModelNotFound, match="'R' is not registered") as gone:
        regions.get("R")
    assert gone.value.trailers == (("reactant-unknown-region", "R"),)


@pytest.mark.parametrize(
    ("offset", "size"), [(4000, 200), (2**64 - 8, 16), (0, 0), (0, SIZE + 1), (SIZE, 1), (0, 2**64 - 1)]
)
def test_s2_ranges_outside_the_object_are_refused(regions: Regions, offset: int, size: int) -> None:
    with pytest.raises(InvalidArgument, match="must lie inside the object"):
        regions.register("R", "/object", offset, size)
    assert names(regions) == set()


def test_s2_windows_are_exact_and_need_no_alignment(regions: Regions, root: Path) -> None:
    regions.register("R", "/object", 100, 64)
    region = regions.get("R")
    assert region.read(3, 5) == bytes(range(103, 108))
    region.write(60, b"wxyz")
    for offset, size in ((60, 5), (-1, 4), (64, 1), (0, 65)):
        with pytest.raises(InvalidArgument, match="outside shared-memory region 'R' of 64 bytes"):
            region.read(offset, size)
        with pytest.raises(InvalidArgument, match="outside"):
            region.write(offset, bytes(size))
    with pytest.raises(InvalidArgument, match="takes 9 bytes, shared_memory_byte_size for region 'R' is 8"):
        Window(region, 0, 8).write(bytes(9))
    content = (root / "object").read_bytes()
    assert content[160:164] == b"wxyz"
    assert content[164:] == (bytes(range(256)) * (SIZE // 256))[164:]
    assert content[:160] == (bytes(range(256)) * (SIZE // 256))[:160]


@pytest.mark.parametrize(
    "key",
    ["../../etc/passwd", "/a/b", "////", "", "/", "x" * 300, "a\0b", "/reactant-w", "///reactant-w", ".",
     "..", "link", "folder", "pipe", "nothing"],
)  # fmt: skip
def test_s3_keys_name_one_object_and_tell_nothing_else(regions: Regions, root: Path, key: str) -> None:
    (root / "reactant-w").write_bytes(bytes(64))
    (root / "link").symlink_to("/etc/passwd")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(InvalidArgument) as refused:
        regions.register("R", key, 0, 1)
    if "reactant-" not in key:
        text = refused.value.message.replace(f"key '{key}'", "")
        assert text == (
            "shared-memory region 'R':  is not the name of a POSIX shared-memory object this server can open"
        )


def test_s5_an_object_made_anew_is_not_the_registered_one(regions: Regions, root: Path) -> None:
    regions.register("R", "/object", 0, 4)
    (root / "object").unlink()
    (root / "object").write_bytes(b"new!" * 1024)
    assert regions.get("R").read(0, 4) == bytes(range(4))


def test_an_object_cut_short_is_an_error_not_a_crash(regions: Regions, root: Path) -> None:
    regions.register("R", "/object", 0, SIZE)
    os.truncate(root / "object", 10)
    region = regions.get("R")
    assert region.read(0, 10) == bytes(range(10))
    with pytest.raises(InvalidArgument, match="shorter than when it was registered"):
        region.read(0, 11)
    with pytest.raises(InvalidArgument, match="shorter than when it was registered"):
        region.write(8, b"abc")
    assert os.path.getsize(root / "object") == 10


def test_descriptors_are_closed_with_the_last_user(regions: Regions) -> None:
    before = set(os.listdir("/proc/self/fd"))
    regions.register("R", "/object", 0, SIZE)
    user = regions.get("R")
    regions.unregister("R")
    assert user.read(0, 1) == b"\0"
    with pytest.raises(InvalidArgument):
        regions.register("bad", "/object", 0, SIZE + 1)
    del user
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"shared_memory_region": ("int64_param", 7)}, "'shared_memory_region' must be string_param"),
        ({"shared_memory_region": ("string_param", "")}, "must not be empty"),
        ({"shared_memory_region": ("string_param", "R")}, "'shared_memory_byte_size' must be int64_param"),
        (
            {"shared_memory_region": ("string_param", "R"), "shared_memory_byte_size": ("string_param", "4")},
            "'shared_memory_byte_size' must be int64_param",
        ),
        (
            {"shared_memory_region": ("string_param", "R"), "shared_memory_byte_size": ("int64_param", -1)},
            "-1 bytes at offset 0 lie outside",
        ),
        (
            {
                "shared_memory_region": ("string_param", "R"),
                "shared_memory_byte_size": ("int64_param", 8),
                "shared_memory_offset": ("int64_param", 60),
            },
            "8 bytes at offset 60 lie outside shared-memory region 'R' of 64 bytes",
        ),
    ],
)
def test_tensor_parameters_are_checked(
    regions: Regions, given: dict[str, tuple[str, object]], complaint: str
) -> None:
    regions.register("R", "/object", 0, 64)
    parameters = {key: pb.InferParameter(**{choice: value}) for key, (choice, value) in given.items()}  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=f"input 'X': .*{complaint}"):
        regions.window("input 'X': ", parameters)
    assert regions.window("", {}) is None
