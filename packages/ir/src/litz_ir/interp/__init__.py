"""The reference interpreter: what every operation means, in NumPy."""
