"""Inner loops: tiles, contractions and attention as they are recognised in a kernel."""
