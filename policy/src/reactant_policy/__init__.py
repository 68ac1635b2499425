"""Every decision of ReactantServer as pure functions: values in, values out."""
