"""From loop graphs to fused graphs to plans, with a reason for every choice."""

__version__ = "0.1.0"
