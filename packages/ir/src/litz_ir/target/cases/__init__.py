"""The kernels of the conformance suite."""

from litz_ir.target.cases.case import Case
from litz_ir.target.cases.elementwise import elementwise_cases
from litz_ir.target.cases.horizontal_fusion import horizontal_fusion_cases
from litz_ir.target.cases.indexing import indexing_cases
from litz_ir.target.cases.matmul import matmul_cases
from litz_ir.target.cases.nested_reductions import nested_reduction_cases
from litz_ir.target.cases.ordered import ordered_cases
from litz_ir.target.cases.reductions import reduction_cases

__all__ = ["Case", "all_cases"]


def all_cases() -> tuple[Case, ...]:
    """Every case, from the simplest capabilities to the most demanding."""
    return (
        *elementwise_cases(),
        *indexing_cases(),
        *reduction_cases(),
        *matmul_cases(),
        *nested_reduction_cases(),
        *ordered_cases(),
        *horizontal_fusion_cases(),
    )
