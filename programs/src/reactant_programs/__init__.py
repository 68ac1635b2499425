"""StableHLO artifacts: read, check, compile ahead of time and call.

Importing this package turns on JAX's 64-bit types, once and for the whole process: without them JAX
turns i64 and f64 arrays silently into i32 and f32. It also keeps XLA's own C++ warnings, such as those of
its autotuner's timers, off standard error, unless TF_CPP_MIN_LOG_LEVEL says otherwise.
"""

from __future__ import annotations

import os

# Read once, when jaxlib is loaded: before anything below imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from reactant_programs.settings import set_option

set_option("jax_enable_x64", True)
