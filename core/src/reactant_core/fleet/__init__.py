"""The fleet as Redis holds it, and how workers and gateways take part in it."""
