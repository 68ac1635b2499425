"""One KServe V2 address in front of many workers."""
