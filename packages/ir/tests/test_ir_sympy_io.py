"""Conversion from and to sympy, and sympy as the oracle of the term language."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sympy
from hypothesis import given, settings
from ir_term_strategies import NAMES, Tree, sympy_of, term_of, terms_with_values, trees

from litz_ir.errors import SymbolError
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.proofs import Predicate
from litz_ir.symbols.quotients import cdiv
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.sympy_io import from_sympy, predicate_from_sympy, to_sympy
from litz_ir.symbols.term import Atom, Size, evaluate, symbol

i, j, s, t = (symbol(name) for name in NAMES)
SI, SJ, S, T = (sympy.Symbol(name, integer=True) for name in NAMES)
fixed = settings(max_examples=150, derandomize=True, deadline=None)


@fixed
@given(terms_with_values())
def test_sympy_agrees_on_the_value(sample: tuple[Size, dict[str, int], int]) -> None:
    term, env, value = sample
    assert to_sympy(term).subs({sympy.Symbol(name, integer=True): x for name, x in env.items()}) == value


@fixed
@given(terms_with_values())
def test_there_and_back(sample: tuple[Size, dict[str, int], int]) -> None:
    term, env, value = sample
    assert evaluate(from_sympy(to_sympy(term)), env) == value


@fixed
@given(trees)
def test_polynomials_are_as_canonical_as_expanded_ones(tree: Tree) -> None:
    polynomial = _polynomial(tree)
    assert sympy.expand(to_sympy(term_of(polynomial)) - sympy_of(polynomial)) == 0
    assert term_of(polynomial) == from_sympy(sympy.expand(sympy_of(polynomial)))


def _polynomial(tree: Tree) -> Tree:
    """The tree with sums and products in place of all else."""
    if isinstance(tree, (int, str)):
        return tree
    operation, left, right = tree
    return (operation if operation in "+-*" else "*", _polynomial(left), _polynomial(right))


# What torch's ShapeEnv calls its functions; only the class names matter here.
class FloorDiv(sympy.Function):
    is_integer = True


class CleanDiv(FloorDiv):
    pass


class CeilDiv(sympy.Function):
    is_integer = True


class PythonMod(sympy.Function):
    is_integer = True


class ModularIndexing(sympy.Function):
    is_integer = True


class PowByNatural(sympy.Function):
    is_integer = True


class LShift(sympy.Function):
    is_integer = True


class RShift(sympy.Function):
    is_integer = True


class Identity(sympy.Function):
    is_integer = True


class IntTrueDiv(sympy.Function):
    is_real = True


class CeilToInt(sympy.Function):
    is_integer = True


class FloorToInt(sympy.Function):
    is_integer = True


class ToFloat(sympy.Function):
    is_real = True


@pytest.mark.parametrize(
    ("expr", "term"),
    [
        (SI * S + 3 * SJ - 2, i * s + j * 3 - 2),
        (S**3, s * s * s),
        (sympy.floor(S / 4), s // 4),
        (sympy.floor(S * sympy.Rational(3, 4) + sympy.Rational(1, 4)), (s * 3 + 1) // 4),
        (sympy.ceiling(S / 4), cdiv(s, 4)),
        (sympy.ceiling(S / T), -(-s // t)),
        (sympy.Mod(SI, 8), i % 8),
        (sympy.Max(1, S), maximum(s, 1)),
        (sympy.Min(SI, S, 3), minimum(i, s, 3)),
        (sympy.Abs(S), maximum(s, -s)),
        (sympy.Symbol("s0", integer=True, positive=True), symbol("s0")),
        (FloorDiv(S + 3, 4), (s + 3) // 4),
        (CleanDiv(S, 4), s // 4),
        (CeilDiv(S, 4), cdiv(s, 4)),
        (PythonMod(S, T), s % t),
        (ModularIndexing(SI, 4, 8), (i // 4) % 8),
        (PowByNatural(S, 2), s * s),
        (LShift(S, 2), s * 4),
        (RShift(S, 2), s // 4),
        (Identity(S + 1), s + 1),
        (CeilToInt(IntTrueDiv(S, 7)), cdiv(s, 7)),
        (FloorToInt(IntTrueDiv(S, 7)), s // 7),
        (CeilToInt(S), s),
    ],
)
def test_reads(expr: sympy.Expr, term: Size) -> None:
    assert from_sympy(expr) == term


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        (S / 2, "'1/2' is not an integer"),
        (1 / S, "exponent '-1'"),
        (sympy.sqrt(S), "exponent '1/2'"),
        (S**20, "exponent 20 is above"),
        (2**S, "exponent 's'"),
        (sympy.sin(S), "'sin' has no counterpart"),
        (S + sympy.Float(2.5), "not an integer"),
        (sympy.oo, "'oo' is not an integer"),
        (ToFloat(S), "'ToFloat' has no counterpart"),
        (IntTrueDiv(S, 3), "'IntTrueDiv' has no counterpart"),
        (FloorDiv(S, 0), "division by zero"),
        (FloorDiv(S), "1 arguments instead of 2"),
        (LShift(S, T), "a shift by 't' bits"),
        (sympy.Symbol("z", real=True, integer=False), "symbol 'z' is not an integer"),
        (sympy.true, "'BooleanTrue' has no counterpart"),
    ],
)
def test_refuses(expr: sympy.Basic, reason: str) -> None:
    with pytest.raises(SymbolError) as caught:
        from_sympy(expr)
    assert reason in str(caught.value)
    assert "sympy expression" in str(caught.value)


@pytest.mark.parametrize(
    ("expr", "predicate"),
    [
        (sympy.Eq(S, T), Predicate("eq", s, t)),
        (sympy.Ne(S, 1), Predicate("ne", s, 1)),
        (S < T, Predicate("lt", s, t)),
        (S <= T, Predicate("le", s, t)),
        (S > T, Predicate("lt", t, s)),
        (S >= 2, Predicate("le", 2, s)),
        (sympy.Eq(sympy.Mod(S, 8), 0), Predicate("divides", 8, s)),
    ],
)
def test_reads_relations(expr: sympy.Basic, predicate: Predicate) -> None:
    assert predicate_from_sympy(expr) == predicate


def test_refuses_anything_but_a_single_relation() -> None:
    with pytest.raises(SymbolError, match="'And' is not a single relation"):
        predicate_from_sympy(sympy.And(S < T, S > 1))


def test_symbols_may_be_given() -> None:
    positive = sympy.Symbol("s", integer=True, positive=True)
    assert to_sympy(s + i, {"s": positive}) == positive + SI


def test_atoms_have_no_sympy_form() -> None:
    class Loaded(Atom):
        __slots__ = ()

        @property
        def atom_key(self) -> str:
            return "loaded"

    with pytest.raises(SymbolError, match="comes from a loaded value"):
        to_sympy(Loaded._intern() + i)


def test_sympy_decides_the_same_equalities() -> None:
    # (i*s + j) - (i*s + j) % s is a multiple of s in both worlds.
    term = (i * s + j) - (i * s + j) % s
    assert substitute(term, {"i": 3, "j": 4, "s": 7}) == 21
    assert to_sympy(term).subs({SI: 3, SJ: 4, S: 7}) == 21


def test_terms_do_not_import_sympy() -> None:
    script = "import litz_ir, litz_ir.symbols, sys; assert 'sympy' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
        capture_output=True,
    )
