"""StableHLO artifacts: read, check, compile ahead of time and call.

Importing this package turns on JAX's 64-bit types, once and for the whole process: without them JAX
turns i64 and f64 arrays silently into i32 and f32.
"""

from __future__ import annotations

from reactant_programs.settings import set_option

set_option("jax_enable_x64", True)
