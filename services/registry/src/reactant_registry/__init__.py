"""Fleet membership and placement over Redis."""
