"""Comparison of the kernels of two trees: `python -m replay`, and `nox -s replay`.

`plugin` has lowering's tests leave their kernels as `records`, `graphs_of_forms` adds the table of kernel forms;
`canonical` makes texts the same up to names, `compare` matches the records of two trees, `run` does all of it.
"""
