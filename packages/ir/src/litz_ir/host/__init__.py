"""Running a plan: memory, routines of the host, the executor."""
