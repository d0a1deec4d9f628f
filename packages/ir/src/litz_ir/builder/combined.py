"""Checks of combiners, and the dtypes of what they combine."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.builder.checks import shown
from litz_ir.dtypes import DType
from litz_ir.errors import GraphError, LitzError
from litz_ir.loops.nodes import Combiner, NamedCombiner, UserCombiner
from litz_ir.scalar.node import Expr


def combiner_of(kind: object) -> Combiner:
    """Return a combiner, given itself or by the name of its kind; raises ``GraphError`` for anything else."""
    if isinstance(kind, UserCombiner):
        return kind
    if not isinstance(kind, str):
        raise GraphError(
            f"the combiner is {shown(kind)}, but the name of a kind or a UserCombiner belongs there",
            hint="the kinds are the rows of litz_ir.loops.REDUCTION_KINDS",
        )
    return NamedCombiner(kind)


def combined_dtypes(combiner: Combiner, values: Sequence[Expr]) -> tuple[DType, ...]:
    """Return the dtypes of the results of a combiner; raises ``DTypeError`` for values that it does not accept."""
    title = "the combiner" if isinstance(combiner, UserCombiner) else combiner.name
    if len(values) != combiner.inputs:
        raise GraphError(
            f"{title} combines {combiner.inputs} values of each element, but {len(values)} are given",
            hint="give one tensor for each value",
        )
    if isinstance(combiner, UserCombiner):
        return tuple(each.dtype for each in combiner.finish)
    dtypes = tuple(each.dtype for each in values)
    try:
        return combiner.kind.definition(dtypes).dtypes[: combiner.results]
    except LitzError:
        raise
    except Exception as error:  # the definition is another package's function
        raise GraphError(
            f"the definition of {title} of ({', '.join(map(str, dtypes))}) raised {type(error).__name__}: {error}",
            hint="a definition raises DTypeError for dtypes that it does not accept",
        ) from error
