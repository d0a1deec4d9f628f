"""Functions and memory that host programs use when they run."""
