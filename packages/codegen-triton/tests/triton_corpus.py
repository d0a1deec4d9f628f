"""Hand-built kernels, and a program that compares their results with the reference interpreter's.

Run as a program (``TRITON_INTERPRET=1 python triton_corpus.py``) it runs every case in Triton's interpreter and prints
one line of JSON per case: its name and the difference, empty where there is none.
"""

from __future__ import annotations

import sys

from triton_cases import I0, Case, kernel, main
from triton_maps import indirect, maps, whole_rows
from triton_operations import conversions, error_functions, operations, operations_with_constants, quotients
from triton_reductions import clusters, reductions, windows
from triton_scans import lookback_scans, scans

from litz_ir.dtypes import f32
from litz_ir.plan import Store
from litz_ir.scalar.build import load
from litz_ir.symbols import add


def cases() -> list[Case]:
    """Return the whole corpus."""
    return [
        *maps(),
        *indirect(),
        *reductions(),
        *windows(),
        *clusters(),
        *scans(),
        *lookback_scans(),
        *conversions(),
        *operations(),
        *operations_with_constants(),
        *error_functions(),
        *quotients(),
        *whole_rows(),
    ]


def of_no_order() -> list[Case]:
    """Return kernels whose CTAs overwrite elements that other CTAs load.

    Their results depend on the order of the CTAs, so that no plan may have such kernels.
    """
    made = []
    for name, read, written in (("moved_down", 20000, 0), ("moved_up", 0, 20000)):
        body = Store("x", add(I0, written), load("x", (add(I0, read),), f32))
        made.append(Case(kernel(name, [("x", f32, "inout")], [("i0", 40000)], ((), [body])), {"x": 60000}))
    return made


if __name__ == "__main__":
    main([*cases(), *of_no_order()], sys.argv[1:])
