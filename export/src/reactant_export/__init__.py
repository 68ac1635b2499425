"""Writes and verifies model bundles."""
