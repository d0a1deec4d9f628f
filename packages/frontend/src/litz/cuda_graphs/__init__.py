"""CUDA graphs of compiled graphs: captured once, replayed by one call of the driver."""
