"""Where weights live: on the host and on the device."""
