"""Memory planning: buffers that share memory, and the steps at which memory is allocated and freed."""
