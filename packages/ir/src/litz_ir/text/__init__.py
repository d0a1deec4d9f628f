"""The text form of loop graphs, fused graphs, plans and kernels, for bug reports, golden tests and documentation.

``from_text(to_text(x)) == x`` for each level. All levels have one syntax: names of buffers start with ``%``, of
scalars with ``$``; ``name: size`` is an axis, ``{ … }`` a body, ``# …`` a comment and ``@ …`` an origin.
"""

from litz_ir.text.parsing.bodies import parse_expr, parse_term
from litz_ir.text.parsing.fused import parse_fused
from litz_ir.text.parsing.kernel import parse_kernel
from litz_ir.text.parsing.levels import from_text
from litz_ir.text.parsing.loops import parse_graph
from litz_ir.text.parsing.plan import parse_plan
from litz_ir.text.printing.bodies import print_expr, print_term
from litz_ir.text.printing.fused import print_fused
from litz_ir.text.printing.kernel import print_kernel
from litz_ir.text.printing.levels import to_text
from litz_ir.text.printing.loops import print_graph
from litz_ir.text.printing.plan import print_plan
from litz_ir.text.schedules import parse_schedule, print_schedule

__all__ = [
    "from_text",
    "parse_expr",
    "parse_fused",
    "parse_graph",
    "parse_kernel",
    "parse_plan",
    "parse_schedule",
    "parse_term",
    "print_expr",
    "print_fused",
    "print_graph",
    "print_kernel",
    "print_plan",
    "print_schedule",
    "print_term",
    "to_text",
]
