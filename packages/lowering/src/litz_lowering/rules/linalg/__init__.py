"""Rules of matmuls and distances."""

from litz_lowering.rules.linalg import distance, matmul

__all__ = ["distance", "matmul"]
