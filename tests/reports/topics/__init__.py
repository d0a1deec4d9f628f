"""Reports by topic; importing this package fills the table."""

from reports.topics import (
    aliasing,
    captured_python,
    complex_numbers,
    custom_operators,
    dynamic_sizes,
    errors,
    gradients,
    indexing,
    integers,
    layers,
    patterns,
    random_numbers,
    reductions,
    special_values,
    writes,
)

__all__ = [
    "aliasing",
    "captured_python",
    "complex_numbers",
    "custom_operators",
    "dynamic_sizes",
    "errors",
    "gradients",
    "indexing",
    "integers",
    "layers",
    "patterns",
    "random_numbers",
    "reductions",
    "special_values",
    "writes",
]
