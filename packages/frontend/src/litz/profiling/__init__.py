"""Links from what runs to the user's program: lines of generated sources, profiler events, printed values."""
