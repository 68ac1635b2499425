"""Plumbing that ReactantServer's services share: config, logs, rpc, web, lifecycle, bundles."""
