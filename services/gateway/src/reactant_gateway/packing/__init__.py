"""Scheduling mode `lpt_packing`: measures, decides by `policy.placement`, puts in force."""
