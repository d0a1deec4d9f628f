"""Compiled graphs as CUDA graphs: recorded once, replayed by one call of the driver."""
