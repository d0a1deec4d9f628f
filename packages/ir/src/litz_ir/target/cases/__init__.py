"""The kernels that a new target runs to learn what it does right."""

from litz_ir.target.cases.case import Case
from litz_ir.target.cases.elementwise import elementwise_cases
from litz_ir.target.cases.folds import fold_cases
from litz_ir.target.cases.indexing import indexing_cases
from litz_ir.target.cases.ordered import ordered_cases
from litz_ir.target.cases.packs import pack_cases
from litz_ir.target.cases.products import product_cases
from litz_ir.target.cases.reductions import reduction_cases

__all__ = ["Case", "all_cases"]


def all_cases() -> tuple[Case, ...]:
    """Every case, in order of what they ask for."""
    return (
        *elementwise_cases(),
        *indexing_cases(),
        *reduction_cases(),
        *product_cases(),
        *fold_cases(),
        *ordered_cases(),
        *pack_cases(),
    )
