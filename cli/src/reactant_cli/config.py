"""`reactant config`: the configuration in force, and where each value comes from."""

from __future__ import annotations


def config() -> None:
    """Prints the configuration."""
