"""Routines of litz that host programs call: the calls that each runs, and their text."""
