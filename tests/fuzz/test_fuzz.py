"""A short run of the fuzzer; `make fuzz` makes a long one."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from tests.fuzz.run import fuzz

INPUTS = 3000
GROWTH_BYTES = 30_000_000


@pytest.mark.slow
def test_random_inputs_harm_nobody(tmp_path: Path) -> None:
    seed = secrets.token_hex(4)
    report = fuzz(tmp_path, seed=seed, inputs=INPUTS, growth_bytes=GROWTH_BYTES)
    assert not report.faults, f"python -m tests.fuzz --seed {seed} --inputs {INPUTS}\n{report}"
    assert report.tally.inputs >= INPUTS
    assert report.calls > 20
