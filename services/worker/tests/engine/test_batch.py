"""Batches of real programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from services.worker.tests.engine.programs import program_set, spec

from reactant_worker.engine import staging
from reactant_worker.engine.batch import ProgramBatch, ProgramSet
from reactant_worker.engine.port import Arrays
from reactant_worker.engine.staging import allocate


def rows(*values: float, width: int = 3) -> Arrays:
    return (np.repeat(np.array(values, np.float32)[:, None], width, axis=1),)


def run(batch: ProgramBatch) -> list[Arrays]:
    batch.launch()
    batch.wait()
    return batch.outputs()


@pytest.fixture
def doubling() -> ProgramSet:
    return program_set(lambda x: (x * 2,), [spec("x", (-1, 3))], [spec("y", (-1, 3))], (1, 4, 8))


def test_requests_get_their_own_rows_back(doubling: ProgramSet) -> None:
    for _ in range(2):
        answers = run(doubling.stage(8, None, [rows(1, 2), rows(3), rows(4, 5, 6)], [2, 1, 3]))
        for answer, expected in zip(answers, [(2, 4), (6,), (8, 10, 12)], strict=True):
            np.testing.assert_array_equal(answer[0], rows(*expected)[0])


def test_rows_of_the_batch_before_are_not_left_as_padding() -> None:
    summing = program_set(
        lambda x: (x + x.sum(0, keepdims=True),), [spec("x", (-1, 3))], [spec("y", (-1, 3))], (4,)
    )
    run(summing.stage(4, None, [rows(100, 100), rows(100)], [2, 1]))
    [(answer,)] = run(summing.stage(4, None, [rows(1)], [1]))
    np.testing.assert_array_equal(answer, rows(2)[0])


def test_a_batch_axis_may_be_any_axis_and_an_output_may_have_none() -> None:
    model = program_set(
        lambda x, y: (x.T + y[:, :, 0], x.sum(1)[:1] * 0 + 7),
        [spec("x", (3, -1), 1), spec("y", (-1, 3, 2))],
        [spec("sum", (-1, 3)), spec("fixed", (1,), None)],
        (4,),
    )
    requests = [
        (np.full((3, count), count, np.float32), np.full((count, 3, 2), 10 * count, np.float32))
        for count in (1, 2)
    ]
    (first, fixed), (second, _) = run(model.stage(4, None, requests, [1, 2]))
    np.testing.assert_array_equal(first, np.full((1, 3), 11))
    np.testing.assert_array_equal(second, np.full((2, 3), 22))
    np.testing.assert_array_equal(fixed, [7])


def test_a_request_that_fills_the_batch_is_not_copied(doubling: ProgramSet) -> None:
    (array,) = rows(1, 2, 3, 4)
    batch = doubling.stage(4, None, [(array,)], [4])
    array[:] = 5
    [(answer,)] = run(batch)
    np.testing.assert_array_equal(answer, np.full((4, 3), 10))


@pytest.mark.parametrize("offset", range(9))
def test_a_request_may_begin_at_any_address(doubling: ProgramSet, offset: int) -> None:
    """As it does inside of a message."""
    (array,) = rows(1, 2, 3, 4)
    lying = np.ndarray(array.shape, array.dtype, bytes(offset) + array.tobytes(), offset)
    [(alone,)] = run(doubling.stage(4, None, [(lying,)], [4]))
    first, second = run(doubling.stage(8, None, [(lying,), (lying,)], [4, 4]))
    for answer in (alone, *first, *second):
        np.testing.assert_array_equal(answer, array * 2)


def test_answers_share_no_memory_with_what_is_written_next() -> None:
    """A program that gives its input back must not give back the slot."""
    echo = program_set(lambda x: (x,), [spec("x", (-1, 3))], [spec("y", (-1, 3))], (4,))
    first, second = run(echo.stage(4, None, [rows(1), rows(2)], [1, 1]))
    run(echo.stage(4, None, [rows(8), rows(9)], [1, 1]))
    assert (first[0][0, 0], second[0][0, 0]) == (1, 2)


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the staging arrays that were made."""
    shapes: list[tuple[int, ...]] = []

    def counted(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        shapes.append(shape)
        return allocate(shape, dtype)

    monkeypatch.setattr(staging, "allocate", counted)
    return shapes


def test_there_are_as_many_slots_as_batches_at_once(
    doubling: ProgramSet, allocated: list[tuple[int, ...]]
) -> None:
    def stage() -> ProgramBatch:
        return doubling.stage(4, None, [rows(1), rows(2)], [1, 1])

    for _ in range(3):
        one, other = stage(), stage()
        run(one)
        other.discard()
    assert allocated == [(4, 3)] * 2


def test_the_slot_of_a_failed_execution_is_not_used_again(allocated: list[tuple[int, ...]]) -> None:
    def check(x: NDArray[Any]) -> NDArray[Any]:
        if x[0, 0] == 13:
            raise ValueError("thirteen")
        return x

    result = jax.ShapeDtypeStruct((4, 3), np.float32)  # type: ignore[no-untyped-call]
    model = program_set(
        lambda x: (jax.pure_callback(check, result, x),),
        [spec("x", (-1, 3))],
        [spec("y", (-1, 3))],
        (4,),
    )
    with pytest.raises(Exception, match="thirteen"):
        run(model.stage(4, None, [rows(13)], [1]))
    [(answer,)] = run(model.stage(4, None, [rows(1)], [1]))
    assert answer[0, 0] == 1
    assert len(allocated) == 2


def test_it_is_known_which_programs_run_in_their_launch() -> None:
    """XLA counts the body of a loop once, thinks the program cheap and does not hand it to a thread."""

    def loop(x: Any) -> tuple[Any]:
        return (jax.lax.fori_loop(0, 300_000, lambda _, y: jnp.sin(y), x),)

    def products(x: Any) -> tuple[Any]:
        square = jnp.ones((512, 512), jnp.float32) * x[0, 0]
        for _ in range(8):
            square = square @ square / 512
        return (x * square[0, 0],)

    on_cpu = jax.default_backend() == "cpu"
    for function, expected in ((loop, on_cpu), (products, False)):
        model = program_set(function, [spec("x", (-1, 3))], [spec("y", (-1, 3))], (1,))
        # A machine that is busy may stop the thread in the launch once.
        assert expected in [known(model) for _ in range(5)]


def known(model: ProgramSet) -> bool:
    batch = model.stage(1, None, [rows(1)], [1])
    run(batch)
    return batch.runs_in_launch
