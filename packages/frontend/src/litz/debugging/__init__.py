"""Debugging tools: bisection, which names a guilty transformation, and minimisation of failing graphs."""
