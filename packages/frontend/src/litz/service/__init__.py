"""Service of a process that compiles: its children, the bound on units, and the progress bar."""
