"""How the servers under test are set up; tests measure against these values."""

from __future__ import annotations

TRANSPORTS = ("native", "grpcio")

GATEWAY = "gateway"
SERVERS = (*(f"worker-{transport}" for transport in TRANSPORTS), GATEWAY)
"""What the conformance tests run against; the gateway has two native workers behind it."""

REPLICAS = 2
"""Workers behind the gateway."""

VIA = (
    "add2",
    "all_types",
    "columns",
    "echo",
    "echo_bf16",
    "echo_bytes",
    "echo_f16",
    "hook_faults",
    "params",
    "sequences",
    "typed_types",
    "unbatched",
    "variants",
)
"""Models that a meta `via_<name>` hands requests to."""

SHARED_MODELS = (
    "add2",
    "all_types",
    "alone",
    "bf16_hook",
    "blob",
    "columns",
    "echo",
    "echo_bf16",
    "echo_bytes",
    "echo_f16",
    "echo_i64",
    "hook_faults",
    "imports_triton",
    "meta_faults",
    "padded",
    "params",
    "sequences",
    "slow",
    "slow_hook",
    "staged",
    "typed_types",
    "unbatched",
    "unbatched_variants",
    "variants",
    *(f"via_{name}" for name in VIA),
    "via_hidden",
)
INTERNAL_MODELS = ("hidden",)
"""Served beside them, for metas only."""

HOOK_THREADS = 8
"""More than any test keeps busy at a time."""

EXPECTED_ERRORS = (
    "hook returned no dict of name to array",
    "hook returned what it must not",
    "hook failed",
    # What grpcio says when a client leaves while its answer is on the way.
    "ExecuteBatchError",
)
"""How lines begin that a server may log as errors while it answers the conformance tests."""

# The worker that loads by request only has small limits.
MESSAGE_LIMIT = 1 << 20
QUEUE_DEPTH = 4
FEW_HOOK_THREADS = 2

ODD_NAMES = ("a.b-1", "модель", "a b", 'quo"te\\ and\nline', "%2e%2e")
"""Names under which the explicit worker finds `echo` as well."""
