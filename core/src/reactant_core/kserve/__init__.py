"""What every server of the KServe V2 surface has in common, so that a client cannot tell them apart."""
