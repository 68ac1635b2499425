"""Search: which of some passages answer a query; a meta model over `minilm`."""
