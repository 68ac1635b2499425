from __future__ import annotations

import pytest

from reactant_core.progress import Progress, parse_readyz


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"ok", Progress(True)),
        (503, b"[1]", Progress(False)),
        (503, b'{"models": 3, "seconds_left": "soon"}', Progress(False)),
        (
            503,
            b'{"state": "starting", "models": {"total": 2, "ready": 1, "x": null}, "seconds_left": 3}',
            Progress(False, "starting", {"total": 2, "ready": 1}, {}, 3.0),
        ),
    ],
)
def test_a_body_is_read_as_far_as_it_makes_sense(status: int, body: bytes, expected: Progress) -> None:
    assert parse_readyz(status, body) == expected


def test_the_summary_counts_and_the_time_stands_apart() -> None:
    progress = Progress(
        False, "starting", {"total": 3, "ready": 1, "failed": 1}, {"done": 2, "total": 9}, 0.4
    )
    assert progress.summary() == "starting, 2/9 programs, 1/3 models ready, 1 failed"
    assert progress.time_left() == ", about 1 s left"
    assert Progress(True, seconds_left=5).time_left() == ""
    assert Progress(True).summary() == "ready"
