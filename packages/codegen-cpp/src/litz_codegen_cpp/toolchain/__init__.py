"""From source text to a shared library: which instructions, which compiler, and the one command that it takes."""
