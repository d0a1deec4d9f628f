"""What a device is, how one is found, and the suite that a new one runs."""
