"""Constructors of terms, literals and numbers whose parameters are the fields of the objects in a document.

Terms need not be in canonical form in a document: these constructors simplify them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NewType

from litz_ir.dtypes import DType
from litz_ir.errors import SerialError
from litz_ir.scalar.expr import (
    BoundsCheck,
    Checked,
    Const,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
)
from litz_ir.scalar.node import Expr
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, Symbol, symbol

FaultName = NewType("FaultName", str)
"""A name in :mod:`litz_ir.faults`."""
Number = NewType("Number", float)
"""The value of a literal: a float, integer or bool, as its dtype says."""
_INDEX_FAULT = FaultName("index")


@dataclass(frozen=True, slots=True)
class Summand:
    """A term of a sum, times a constant."""

    term: Size
    """Term that is multiplied."""
    factor: int = 1
    """Constant that the term is multiplied by."""


def _symbol(name: str) -> Size:
    return symbol(name)


def _sum(terms: tuple[Summand, ...], constant: int = 0) -> Size:
    return add(constant, *[mul(each.term, each.factor) for each in terms])


def _sum_field(term: Sum, name: str) -> int | tuple[Summand, ...]:
    return term.constant if name == "constant" else tuple(Summand(*each) for each in term.terms)


def _times(factors: tuple[Size, ...]) -> Size:
    return mul(*factors)


def _floor_div(dividend: Size, divisor: Size) -> Size:
    return floordiv(dividend, divisor)


def _mod(dividend: Size, divisor: Size) -> Size:
    return mod(dividend, divisor)


def _min(args: tuple[Size, ...]) -> Size:
    return minimum(*args)


def _max(args: tuple[Size, ...]) -> Size:
    return maximum(*args)


def _indirect(
    value: Expr,
    size: Size,
    wrap: bool = False,
    check: BoundsCheck = "raised",
    fault: FaultName = _INDEX_FAULT,
) -> Size:
    return Indirect(value, size, wrap, check, fault)


def _const(value: Number, dtype: DType) -> Expr:
    kinds = (int, float) if dtype.is_float else (bool,) if dtype.is_bool else (int,)
    if type(value) not in kinds:
        raise SerialError(f"expected a literal of {dtype}, found {value}")
    return Const(value, dtype)


def _checked(cond: Expr, body: Expr, fault: FaultName) -> Expr:
    return Checked(cond, body, fault)


def _float(value: float) -> float:
    """A float, where an integer or a string may be too."""
    return value


def _dtype(name: DType) -> DType:
    """A dtype, where a string may be too."""
    return name


def _complex(real: float, imag: float) -> complex:
    """A complex number."""
    return complex(real, imag)


CONSTRUCTORS: Mapping[type, Callable[..., Any]] = MappingProxyType(
    {
        DType: _dtype,
        float: _float,
        complex: _complex,
        Symbol: _symbol,
        Sum: _sum,
        Product: _times,
        FloorDiv: _floor_div,
        Mod: _mod,
        Min: _min,
        Max: _max,
        Indirect: _indirect,
        Const: _const,
        Index: Index,
        Scalar: Scalar,
        Param: Param,
        Load: Load,
        Op: Op,
        Masked: Masked,
        Checked: _checked,
        NestedReduction: NestedReduction,
    }
)
"""The constructor of each class that is not a dataclass with a field for each parameter."""

FIELDS: Mapping[type, Callable[[Any, str], Any]] = MappingProxyType(
    {DType: lambda value, name: value, float: lambda value, name: value, Sum: _sum_field}
)
"""Functions from a value and the name of a field to the field, where that is no attribute of the value."""
