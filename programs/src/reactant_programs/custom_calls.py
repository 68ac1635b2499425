"""The one place that says which custom calls a program may make.

A custom call names native code that runs inside the server. Accepted are the targets JAX documents as
stable across versions (jax.export, "Compatibility guarantees for custom calls"), of those platforms this
server runs on, and annotations that compile to nothing. Callbacks into Python, Pallas and Triton kernels,
and every name not listed are refused when a program is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_ANNOTATIONS = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        "AllocateBuffer",
    }
)

_LAPACK_ROUTINES = {
    "sd": ("orgqr", "syevd", "sytrd"),
    "cz": ("ungqr", "heevd", "hetrd"),
    "sdcz": ("potrf", "geqrf", "geev", "gesdd", "getrf", "gehrd", "gees", "trsm", "gtsv"),
}
_CPU_LINEAR_ALGEBRA = frozenset(
    f"lapack_{kind}{routine}_ffi"
    for kinds, routines in _LAPACK_ROUTINES.items()
    for kind in kinds
    for routine in routines
)

_GPU_LINEAR_ALGEBRA = frozenset(
    {
        "cu_lu_pivots_to_permutation",
        "cusolver_getrf_ffi",
        "cusolver_geqrf_ffi",
        "cusolver_orgqr_ffi",
        "cusolver_potrf_ffi",
        "cusolver_syevd_ffi",
        "cusolver_gesvd_ffi",
        "cusolver_gesvdj_ffi",
        "cusolver_sytrd_ffi",
        "cusparse_gtsv2_ffi",
    }
)

_RANDOM_NUMBERS = frozenset({"cu_threefry2x32_ffi"})

_NOT_YET_IN_STABLEHLO = frozenset(
    {
        "ApproxTopK",
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
        "mhlo.topk",
        "mhlo.erf",
        "shape_assertion",
    }
)

ALLOWED_TARGETS: Final = (
    _ANNOTATIONS | _CPU_LINEAR_ALGEBRA | _GPU_LINEAR_ALGEBRA | _RANDOM_NUMBERS | _NOT_YET_IN_STABLEHLO
)

ALLOWED_PREFIXES: Final = ("__cublas$", "__cudnn$", "__onednn$")
"""Library calls that XLA itself writes when it optimises; a dumped module may hold them."""


def refused_targets(targets: Iterable[str]) -> list[str]:
    """Those of `targets` a program may not call, sorted."""
    return sorted(
        target
        for target in set(targets)
        if target not in ALLOWED_TARGETS and not target.startswith(ALLOWED_PREFIXES)
    )
