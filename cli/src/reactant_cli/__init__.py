"""The `reactant` command for people."""
