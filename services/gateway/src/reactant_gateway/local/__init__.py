"""Everything that is not ModelInfer or ModelStreamInfer: an in-process server on a private Unix socket."""
