"""The nouns of litz: what is passed between stages, and what each of them means."""

__version__ = "0.1.0"
