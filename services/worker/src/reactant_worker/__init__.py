"""Serves compiled models on one device over KServe V2 gRPC."""
