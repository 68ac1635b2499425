"""Which requests run next on one device: queues, disciplines, coalescing and learned cost."""
