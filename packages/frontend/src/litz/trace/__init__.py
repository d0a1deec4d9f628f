"""Traces of compilations: each form of a graph as a page, in debug folders and in torch's structured trace."""
