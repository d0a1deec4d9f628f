"""C++ kernels for CPUs: emission, compilation and loading of the kernels of a plan.

`docs/architecture.md` in the repository of litz describes it.
"""

__version__ = "0.2.0"
