"""Kernels tried with other schedules on the device, while the graph that they belong to is called."""
