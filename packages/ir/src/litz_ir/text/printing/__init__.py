"""Printers of the text form."""
