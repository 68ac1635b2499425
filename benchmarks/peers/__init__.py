"""Other inference servers that serve the benchmark's function, each in an environment of its own."""
