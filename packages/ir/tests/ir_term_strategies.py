"""Random index expressions: as trees with Python's meaning, built into terms and into sympy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import sympy
from hypothesis import strategies as st

from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, symbol

Tree: TypeAlias = int | str | tuple["str", "Tree", "Tree"]

NAMES = ("i", "j", "s", "t")

TERM_OPS: Mapping[str, Callable[[Size, Size], Size]] = {
    "+": add,
    "-": lambda a, b: add(a, mul(b, -1)),
    "*": mul,
    "//": floordiv,
    "%": mod,
    "min": minimum,
    "max": maximum,
}

INT_OPS: Mapping[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "//": int.__floordiv__,
    "%": int.__mod__,
    "min": min,
    "max": max,
}

SYMPY_OPS: Mapping[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: sympy.floor(a / b),
    "%": sympy.Mod,
    "min": sympy.Min,
    "max": sympy.Max,
}

DIVISORS: tuple[Tree, ...] = (2, 3, 4, 6, 8, -3, "s", "t", ("*", "s", 4), ("*", "s", "t"), ("+", "s", "t"))


def _grown(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    divisors = st.one_of(st.sampled_from(DIVISORS), parts)
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), parts, parts),
        st.tuples(st.sampled_from(["//", "%"]), parts, divisors),
    )


trees: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.integers(-6, 12)), _grown, max_leaves=8
)

environments: st.SearchStrategy[dict[str, int]] = st.fixed_dictionaries(
    {name: st.integers(-9, 9) for name in NAMES}
)


def term_of(tree: Tree) -> Size:
    """The term; raises ValueError where a divisor is the constant 0."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree)
    operation, left, right = tree
    return TERM_OPS[operation](term_of(left), term_of(right))


def value_of(tree: Tree, env: Mapping[str, int]) -> int:
    """The value by Python's own integers; raises ZeroDivisionError."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    operation, left, right = tree
    return INT_OPS[operation](value_of(left, env), value_of(right, env))


def sympy_of(tree: Tree) -> sympy.Expr:
    """The sympy expression, with integer symbols."""
    if isinstance(tree, int):
        return sympy.Integer(tree)
    if isinstance(tree, str):
        return sympy.Symbol(tree, integer=True)
    operation, left, right = tree
    return SYMPY_OPS[operation](sympy_of(left), sympy_of(right))


@st.composite
def terms_with_values(draw: st.DrawFn) -> tuple[Size, dict[str, int], int]:
    """A term, an environment in which it has a value, and that value by Python's own integers."""
    tree = draw(trees.filter(_has_no_zero_divisor))
    env = draw(environments.filter(lambda env: _defined(tree, env)))
    return term_of(tree), env, value_of(tree, env)


def _has_no_zero_divisor(tree: Tree) -> bool:
    try:
        term_of(tree)
    except ValueError:
        return False
    return any(_defined(tree, dict.fromkeys(NAMES, value)) for value in (1, 2, -1))


def _defined(tree: Tree, env: Mapping[str, int]) -> bool:
    try:
        value_of(tree, env)
    except ZeroDivisionError:
        return False
    return True
