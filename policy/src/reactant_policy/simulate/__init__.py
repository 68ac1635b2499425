"""The same decisions in virtual time: arrivals, routing and placement, workers and devices."""
