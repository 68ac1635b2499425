from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from reactant_worker.metas.scratch import Lease, ScratchPool
from reactant_worker.models.hooks import RequestOver


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_has_the_shape_and_the_type_and_can_be_written_to() -> None:
    lease = Lease(ScratchPool(1 << 20))
    for shape, dtype in (((3, 4), "float32"), ((), "int8"), ((0, 5), "f8"), (7, ml_dtypes.bfloat16)):
        array = lease.array(shape, dtype)
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert array.dtype == np.dtype(dtype)
        array[...] = 1
    assert lease.array((np.int64(2), 3), "bool").shape == (2, 3)


def test_no_buffer_is_handed_out_twice_at_a_time() -> None:
    pool = ScratchPool(1 << 20)
    first, second = Lease(pool), Lease(pool)
    arrays = [lease.array(100, "float32") for lease in (first, second, first)]
    for value, array in enumerate(arrays):
        array[...] = value
    assert [array[0] for array in arrays] == [0, 1, 2]
    assert len({address(array) for array in arrays}) == 3


def test_a_buffer_goes_back_when_the_request_and_the_thread_have_left() -> None:
    pool = ScratchPool(1 << 20)
    lease = Lease(pool)
    assert lease.enter()
    used = address(lease.array(100, "float32"))
    lease.leave()
    assert pool.idle_bytes == 0
    assert address(Lease(pool).array(100, "float32")) != used
    lease.leave()
    assert pool.idle_bytes == 4096
    assert address(Lease(pool).array(50, "float64")) == used
    assert pool.idle_bytes == 0


def test_after_its_request_nothing_is_lent_and_nobody_enters() -> None:
    pool = ScratchPool(1 << 20)
    lease = Lease(pool)
    lease.leave()
    assert not lease.enter()
    with pytest.raises(RequestOver):
        lease.array(1, "float32")
    assert pool.idle_bytes == 4096


def test_what_is_over_the_limit_is_freed() -> None:
    pool = ScratchPool(10_000)
    lease = Lease(pool)
    for _ in range(5):
        lease.array(4096, "uint8")
    lease.array(1 << 20, "uint8")
    lease.leave()
    assert pool.idle_bytes == 8192


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        ((1, -1), "float32", ValueError),
        (1, object, TypeError),
        (1, "S", TypeError),
        ((1.5,), "int8", TypeError),
    ],
)
def test_what_no_buffer_can_hold_is_refused(shape: object, dtype: object, error: type[Exception]) -> None:
    lease = Lease(ScratchPool(1 << 20))
    with pytest.raises(error):
        lease.array(shape, dtype)  # type: ignore[arg-type]
