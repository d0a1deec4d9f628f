"""Convolutions: as calls, as loops, and with prepacked weights."""
