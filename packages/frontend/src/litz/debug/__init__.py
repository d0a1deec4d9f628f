"""Looking inside: hooks between passes."""
