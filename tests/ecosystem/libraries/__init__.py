"""A module for each library, with its programs."""
