"""Rules of reductions, scans, sorts and searches."""

from litz_lowering.rules.reductions import histogram, reduce, scan, search, softmax, sort, variance

__all__ = ["histogram", "reduce", "scan", "search", "softmax", "sort", "variance"]
