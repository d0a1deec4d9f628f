"""Loops in C++: phases, reductions and scans in them, and the division of outer points among threads."""
