"""Model versions: what is loaded, how it got there, and the hooks that came with it."""
