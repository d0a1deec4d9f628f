"""Options in environment variables."""
