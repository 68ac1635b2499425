"""Wire contracts of ReactantServer: KServe V2 and control messages with typed stubs."""
