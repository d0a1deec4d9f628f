"""Every decision can be asked for: as data and as text."""
