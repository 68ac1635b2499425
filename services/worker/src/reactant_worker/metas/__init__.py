"""Meta models: bundles whose `model.py` answers a request by calling models of this worker."""
