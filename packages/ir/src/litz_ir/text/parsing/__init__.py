"""Parsers of the text form."""
