"""The custom-call allow-list."""

from __future__ import annotations

import pytest

from reactant_programs.custom_calls import refused_targets


@pytest.mark.parametrize(
    "target",
    [
        "Sharding",
        "lapack_sgetrf_ffi",
        "lapack_zheevd_ffi",
        "cusolver_geqrf_ffi",
        "cu_threefry2x32_ffi",
        "mhlo.topk",
    ],
)
def test_allowed(target: str) -> None:
    assert refused_targets([target]) == []


def test_refused_come_sorted_and_once() -> None:
    assert refused_targets(["z", "Sharding", "a", "z", "xla_python_cpu_callback"]) == [
        "a",
        "xla_python_cpu_callback",
        "z",
    ]


def test_jax_knows_every_cpu_and_gpu_target_listed() -> None:
    """Names are copied by hand: each of the two big families must exist in the JAX that is installed."""
    from jax._src.export import _export

    from reactant_programs.custom_calls import ALLOWED_TARGETS

    ours = {name for name in ALLOWED_TARGETS if name.startswith(("lapack_", "cu_", "cusolver_", "cusparse_"))}
    assert ours <= _export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE
