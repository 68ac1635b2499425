"""Which model belongs on which workers: measured demand, packing, and when to pack anew."""
