"""The data plane: requests off client connections, to a worker each, answers back."""
