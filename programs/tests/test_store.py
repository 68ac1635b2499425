"""The blob store by itself."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from reactant_programs.store import BlobStore


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    store = BlobStore(tmp_path / "blobs")
    store.prepare()
    return store


def test_blobs_come_back(store: BlobStore) -> None:
    assert store.get("key") is None
    store.put("key", b"one")
    store.put("key", b"two")
    store.put("", b"")
    store.put("a/../b" * 100, bytes(1000))

    assert store.get("key") == b"two"
    assert store.get("") == b""
    assert store.get("a/../b" * 100) == bytes(1000)
    assert len(list(store.directory.iterdir())) == 3


def test_readers_see_whole_entries_only(store: BlobStore) -> None:
    blobs = [bytes([value]) * 200_000 for value in range(4)]
    store.put("key", blobs[0])
    done = threading.Event()

    def write(blob: bytes) -> None:
        while not done.is_set():
            store.put("key", blob)

    writers = [threading.Thread(target=write, args=(blob,)) for blob in blobs]
    for writer in writers:
        writer.start()
    seen = {store.get("key") for _ in range(50)}
    done.set()
    for writer in writers:
        writer.join()

    assert seen <= set(blobs)


def test_leftovers_of_dead_writers_go_but_not_of_living_ones(store: BlobStore) -> None:
    old, new = store.directory / ".writing-old", store.directory / ".writing-new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)

    store.prepare()

    assert not old.exists()
    assert new.exists()
