"""The worker's gRPC surface: decoding, validation, hooks and encoding around the engine's port."""
