"""Source text: the writer, casts, spellings of scalar operations, comments."""
