"""The side of the worker that owns the device; the RPC side knows only `engine.port`."""
