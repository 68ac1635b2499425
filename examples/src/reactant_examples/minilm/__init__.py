"""all-MiniLM-L6-v2: sentences to unit vectors of 384 numbers, near when the meanings are near."""
