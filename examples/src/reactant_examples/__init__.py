"""Real models: bundle builders and clients."""
