"""Side-by-side measurements; every figure is a ratio or a raw row of one run."""
