"""The cache: compiled graphs on disk as JSON, sources and binaries, never as pickles."""
