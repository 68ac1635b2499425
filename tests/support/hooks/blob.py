"""BYTES of any size in, BYTES of a size the client names out: bodies larger than any limit to test."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def preprocess(inputs: dict[str, NDArray[Any]], request: Any) -> dict[str, NDArray[Any]]:
    blob, size = inputs["blob"], inputs["reply_size"]
    rows = [[len(b), zlib.crc32(b), int(s)] for b, s in zip(blob, size, strict=True)]
    return {"facts": np.array(rows, np.int64).reshape(len(rows), 3)}


def postprocess(outputs: dict[str, NDArray[Any]], request: Any) -> dict[str, NDArray[Any]]:
    facts = outputs["kept"]
    reply = np.empty(len(facts), np.object_)
    for index, row in enumerate(facts):
        reply[index] = b"\xa5" * int(row[2])
    return {"received": facts[:, 0], "crc": facts[:, 1], "reply": reply}
