"""The index term language: values, canonical forms, text, interning."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_term_strategies import NAMES, environments, terms_with_values, value_of

from litz_ir.errors import SymbolError
from litz_ir.symbols import interning
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Mod, Product, Sum
from litz_ir.symbols.polynomials import add, coefficient, divide, mul, product
from litz_ir.symbols.quotients import cdiv, floordiv, mod
from litz_ir.symbols.substitution import map_atoms, substitute
from litz_ir.symbols.term import Atom, Range, Size, Symbol, Term, evaluate, free_symbols, symbol

i, j, s, t = (symbol(name) for name in NAMES)
fixed = settings(max_examples=400, derandomize=True, deadline=None)


class Loaded(Atom):
    """An index read from a buffer, for these tests."""

    __slots__ = ("position", "size")
    position: Size
    size: int

    @classmethod
    def of(cls, position: Size, size: int) -> Loaded:
        return cls._intern(position=position, size=size)

    @property
    def atom_key(self) -> str:
        return f"loaded({self.position})"

    def atom_free_symbols(self) -> frozenset[str]:
        return free_symbols(self.position)

    def bounds(self) -> Range | None:
        return Range(0, self.size - 1)

    def substitute_atom(self, mapping: Mapping[str, Size]) -> Size:
        return Loaded.of(substitute(self.position, mapping), self.size)

    def evaluate_atom(self, env: Mapping[str, int]) -> int:
        return evaluate(self.position, env) % self.size


@fixed
@given(terms_with_values())
def test_construction_keeps_the_value(sample: tuple[Size, dict[str, int], int]) -> None:
    term, env, value = sample
    assert evaluate(term, env) == value


@fixed
@given(terms_with_values())
def test_text_is_python_of_the_same_value(sample: tuple[Size, dict[str, int], int]) -> None:
    term, env, value = sample
    assert eval(str(term), {"__builtins__": {}, "min": min, "max": max}, env) == value


@fixed
@given(terms_with_values(), st.integers(-5, 5), st.integers(-5, 5))
def test_substitution_is_simultaneous(sample: tuple[Size, dict[str, int], int], a: int, b: int) -> None:
    term, env, value = sample
    # Where the new symbols make up for it, i and j have the values that they had.
    mapping: dict[str, Size] = {"i": j * 2 + a, "j": i - j + b, "s": symbol("u")}
    i_new = (env["i"] - a) // 2
    env_new = {**env, "j": i_new, "i": env["j"] + i_new - b, "u": env["s"]}
    if (env["i"] - a) % 2 == 0:
        assert evaluate(substitute(term, mapping), env_new) == value


@fixed
@given(terms_with_values())
def test_structure_is_canonical(sample: tuple[Size, dict[str, int], int]) -> None:
    term, _, _ = sample
    assert isinstance(term, (int, Term))
    if isinstance(term, Sum):
        assert [part.key for part, _ in term.terms] == sorted(part.key for part, _ in term.terms)
        assert all(factor and not isinstance(part, Sum) for part, factor in term.terms)
        assert len(term.terms) > 1 or term.constant or term.terms[0][1] != 1
    if isinstance(term, Term):
        assert len(term.key) < 100
        assert pickle.loads(pickle.dumps(term)) is term
        assert copy.deepcopy(term) is term


@fixed
@given(environments, st.lists(st.integers(-4, 4), min_size=12, max_size=12))
def test_division_of_polynomials_is_exact(env: dict[str, int], scales: list[int]) -> None:
    monomials: list[Size] = [i * s, j * s * t, i * t, s, t, j * j, i, j, 1]
    dividend = add(*[mul(x, scale) for x, scale in zip(monomials, scales)])
    for divisor in (s, s * 2, s * t, s + t, s + 1, s * t + j, scales[-1]):
        if divisor == 0:
            continue
        quotient, rest = divide(dividend, divisor)
        assert evaluate(quotient, env) * evaluate(divisor, env) + evaluate(rest, env) == evaluate(
            dividend, env
        )


def test_equal_terms_are_one_object() -> None:
    assert i * 1024 + j is j + 1024 * i
    assert i * (s + t) is i * s + t * i
    assert (i + 5) // 4 is (i + 1) // 4 + 1
    assert minimum(i, minimum(j, 3)) is minimum(3, j, i)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (i * 1024 + j, "i*1024 + j"),
        ((i + 3) // 4, "(i + 3)//4"),
        (i % 4, "i % 4"),
        (63 - i, "63 - i"),
        (-i - 1, "-i - 1"),
        (i // 4 * 8 + j, "j + (i//4)*8"),
        (-(i // 4), "-(i//4)"),
        ((i // s) % t, "(i//s) % t"),
        (minimum(i, 3) + maximum(j, s), "max(j, s) + min(3, i)"),
        (i * s * 2 + i * j, "i*j + i*s*2"),
        (3 // s, "3//s"),
        (-3 % s, "(-3) % s"),
    ],
)
def test_text(term: Size, text: str) -> None:
    assert str(term) == text


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ((i * 12 + 7) // 4, i * 3 + 1),
        ((i * 6 + 4) // 4, (i * 3) // 2 + 1),
        (i // 3 // 4, i // 12),
        ((i // 3 + 2) // 4, (i + 6) // 12),
        ((i % 32) // 8, (i // 8) % 4),
        ((i * s + j) // s, i + j // s),
        ((i * s) // (j * s), i // j),
        ((i * (s + t) + j) // (s + t), i + j // (s + t)),
        ((i * 4 + 2) % 8, (i % 2) * 4 + 2),
        ((i % 8 + j) % 4, (i + j) % 4),
        ((i * 9) % 8, i % 8),
        ((i * s + j) % s, j % s),
        ((i * s) % (j * s), (i % j) * s),
        (i % -4, -(-i % 4)),
        (i // -4, (-i) // 4),
        (i // 1, i),
        (i % 1, 0),
        (i // i, 1),
        (minimum(i, i + 3), i),
        (maximum(i, i + 3, 2, 5), maximum(i + 3, 5)),
        (cdiv(i, 4), (i + 3) // 4),
        (product([2, i, 3, s]), i * s * 6),
        (product([]), 1),
        (add(), 0),
        (0 * i, 0),
        (i - i, 0),
    ],
)
def test_rules_that_need_no_ranges(term: Size, expected: Size) -> None:
    assert term == expected


def test_constants_fold() -> None:
    assert (floordiv(-7, 2), mod(-7, 2), floordiv(7, -2), mod(7, -2), cdiv(7, 2)) == (-4, 1, -4, -1, 4)
    assert minimum(3, 1, 2) == 1
    assert maximum(3, 1, 2) == 3


def test_division_by_the_constant_zero() -> None:
    for operation in (floordiv, mod, divide):
        with pytest.raises(ValueError, match="by zero"):
            operation(i, 0)
        with pytest.raises((ValueError, ZeroDivisionError)):
            operation(3, 0)


def test_evaluation_names_unbound_symbols() -> None:
    with pytest.raises(SymbolError, match="no value for symbol 'j'; bound symbols: i, s"):
        evaluate(i + j, {"i": 1, "s": 2})
    with pytest.raises(SymbolError, match=r"division by zero in 'i//s'"):
        evaluate(i // s, {"i": 1, "s": 0})


def test_names_of_symbols() -> None:
    assert symbol("s0.rows") is symbol("s0.rows")
    for name in ("", "1x", "a b", "a-b"):
        with pytest.raises(SymbolError, match="not a symbol's name"):
            symbol(name)


def test_terms_are_immutable() -> None:
    for x, name in ((i, "name"), (i + 1, "constant"), (i * j, "factors"), (i // 2, "dividend")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(x, name, None)


def test_terms_and_ints_do_not_mix_with_other_types() -> None:
    with pytest.raises(TypeError):
        i + 1.5  # type: ignore[operator]  # what is tested
    assert i != 0
    assert i != "i"


def test_free_symbols_and_coefficients() -> None:
    x = i * s * 4 + j * 3 + (s // 2) * i + 7
    assert free_symbols(x) == {"i", "j", "s"}
    assert coefficient(x, "i") == s * 4 + s // 2
    assert coefficient(x, "j") == 3
    assert coefficient(x, "t") == 0
    assert coefficient(x, "s") is None
    assert coefficient(i * i, "i") is None
    assert coefficient(5, "i") == 0


def test_long_products_are_not_expanded_without_end() -> None:
    names = [symbol(f"a{k}") for k in range(12)]
    wide = add(*names)
    x = mul(wide, wide, wide, wide)
    env = {name.name: k for k, name in enumerate(names)}
    assert evaluate(x, env) == 66**4
    assert evaluate(substitute(x, {"a1": 7}), env) == 72**4


def test_interned_terms_are_released() -> None:
    before = len(interning._values)
    terms = [(symbol(f"released{k}") * 3 + 1) // 7 for k in range(100)]
    assert len(interning._values) >= before + 300
    del terms
    gc.collect()
    assert len(interning._values) <= before


def test_keys_do_not_depend_on_the_process() -> None:
    script = (
        "from litz_ir.symbols import minimum, symbol\n"
        "a = [symbol(f'n{k}') for k in range(30)]\n"
        "x = sum(a[1:], a[0]) // 7 + minimum(*a) * a[3]\n"
        "print(x.key, x)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_kinds() -> None:
    assert isinstance(i, Symbol)
    assert isinstance(i + 1, Sum)
    assert isinstance(i * j, Product)
    assert isinstance(i // 2, FloorDiv)
    assert isinstance(i % 2, Mod)
    quotient = (i + 1) // s
    assert isinstance(quotient, FloorDiv)
    assert (quotient.dividend, quotient.divisor) == (i + 1, s)


def test_atoms() -> None:
    atom = Loaded.of(i + 1, 10)
    assert Loaded.of(1 + i, 10) is atom
    index = atom * s + (atom % 4) // 2
    assert isinstance(index, Term)
    assert index.atoms() == (atom,)
    product = i * s
    assert isinstance(product, Term) and product.atoms() == ()
    assert index.free_symbols == {"i", "s"}
    assert str(index) == "(loaded(i + 1)//2) % 2 + s*loaded(i + 1)"
    halved = substitute(index, {"s": 2})
    assert isinstance(halved, Term)
    assert substitute(index, {"i": 12, "s": 2}) == map_atoms(halved, lambda _: Loaded.of(13, 10))
    assert map_atoms(index, lambda _: 7) == s * 7 + 1
    assert evaluate(index, {"i": 12, "s": 5}) == 15 + 1
    with pytest.raises(SymbolError, match="no value outside"):
        Atom.evaluate_atom(atom, {})


def test_trees_are_read_as_python_reads_them() -> None:
    assert value_of(("//", ("-", "i", 7), -3), {"i": 0}) == 2
