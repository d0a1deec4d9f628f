"""The command line: scripts that are run, explained or timed with litz, the state of an installation, and the cache."""
