"""StableHLO artifacts: read, check, compile ahead of time and call."""
