"""The workers behind this gateway: where they are, whether they are reachable, what they serve."""
