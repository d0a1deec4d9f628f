"""The symbol table and proofs: proven predicates hold, and provable ones are proven."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ir_term_strategies import Tree, term_of, trees, value_of

from litz_ir.errors import SymbolError
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.proofs import (
    Predicate,
    PredicateKind,
    Prover,
    known_divides,
    known_equal,
    known_le,
    known_lt,
    prove,
)
from litz_ir.symbols.quotients import cdiv
from litz_ir.symbols.ranges import extent
from litz_ir.symbols.table import DEFAULT_HINT, SymbolInfo, SymbolTable
from litz_ir.symbols.term import Range, Size, evaluate, symbol

i, j, s, t, u = (symbol(name) for name in "ijstu")

MEANING = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "divides": lambda a, b: b % a == 0 if a else b == 0,
}

infos = st.tuples(
    st.sampled_from([None, -3, 0, 1, 2]), st.sampled_from([None, 6, 9]), st.sampled_from([1, 1, 2, 4])
)


@st.composite
def tables(draw: st.DrawFn) -> SymbolTable:
    """Tables over i, j, s and t; at times one of them is said to be twice another, or one more."""
    table = SymbolTable()
    for name in "ijst":
        low, high, divisor = draw(infos)
        table = table.add(SymbolInfo(name, low=low, high=high, divisor=divisor))
    equality = draw(st.sampled_from([None, (s, t + 1), (i, j * 2), (j - i, 3)]))
    return table if equality is None else table.add_equality(*equality)


@st.composite
def environments_of(draw: st.DrawFn, table: SymbolTable) -> dict[str, int]:
    """Values that the table allows."""
    env: dict[str, int] = {}
    for info in table:
        low = -9 if info.low is None else info.low
        high = 9 if info.high is None else info.high
        value = draw(st.integers(low, high))
        env[info.name] = value - value % info.divisor
    for left, right in table.equalities:
        env["s"] = env["t"] + 1 if left == s else env["s"]
        env["i"] = env["j"] * 2 if left == i else env["j"] - 3 if left == j - i else env["i"]
        assert evaluate(left, env) == evaluate(right, env)
    assume(all(_allowed(info, env[info.name]) for info in table))
    return env


def _allowed(info: SymbolInfo, value: int) -> bool:
    return (
        (info.low is None or info.low <= value)
        and (info.high is None or value <= info.high)
        and value % info.divisor == 0
    )


@settings(max_examples=600, derandomize=True, deadline=None)
@given(
    st.sampled_from(sorted(MEANING)), trees, st.one_of(trees, st.integers(-2, 2)), st.booleans(), st.data()
)
def test_proven_predicates_hold(
    kind: PredicateKind, left: Tree, right: Tree, near: bool, data: st.DataObject
) -> None:
    if near:
        right = ("+", left, data.draw(st.integers(-1, 1)))
    table = data.draw(tables())
    try:
        a, b = term_of(left), term_of(right)
        verdict = prove(Predicate(kind, a, b), table)
        env = data.draw(environments_of(table))
        holds = MEANING[kind](value_of(left, env), value_of(right, env))
    except (ValueError, ZeroDivisionError):
        assume(False)
    except SymbolError as error:
        assert "leave no value" in str(error)
        assume(False)
    assert verdict in (None, holds)


table = SymbolTable(
    (
        SymbolInfo("s", low=1, divisor=8),
        SymbolInfo("t", low=0),
        SymbolInfo("u"),
        SymbolInfo("i", low=0, high=9),
    ),
    ((u, t + 1),),
)


@pytest.mark.parametrize(
    ("kind", "a", "b", "verdict"),
    [
        ("divides", 8, s, True),
        ("divides", 4, s * 3 + 12, True),
        ("divides", 16, s, None),
        ("divides", 16, s * 2, True),
        ("divides", 8, s + 4, False),
        ("divides", s, s * t, True),
        ("divides", 0, t, None),
        ("eq", s % 4, 0, True),
        ("eq", s * t + s, s * u, True),
        ("eq", s + 1, s // 8 * 8, False),
        ("eq", t // 4 * 4 + t % 4, t, True),
        ("eq", t, 0, None),
        ("eq", t * 2, 7, False),
        ("ne", s, 0, True),
        ("ne", t, 0, None),
        ("le", 8, s, True),
        ("le", t, u, True),
        ("lt", t, u, True),
        ("lt", u, t, False),
        ("lt", i, 10, True),
        ("lt", s, t, None),
        ("le", s, s * u, True),
        ("le", minimum(s, t), s, True),
        ("le", s, maximum(s, t), True),
        ("lt", maximum(s, t), s, False),
        ("le", cdiv(t, 4), t, True),
        ("lt", cdiv(t, 4) * 4, t, False),
        ("le", cdiv(t, 4) * 4, t + 3, True),
        ("le", t // s * s, t, True),
        ("lt", t % s, s, True),
    ],
)
def test_verdicts(kind: PredicateKind, a: Size, b: Size, verdict: bool | None) -> None:
    assert prove(Predicate(kind, a, b), table) is verdict


def test_small_questions() -> None:
    assert known_equal(s, s, table)
    assert known_le(t, u, table)
    assert known_lt(t, u, table)
    assert known_divides(8, s, table)
    assert not known_equal(t, 0, table)
    assert not known_divides(16, s, table)


def test_ranges_alone_are_knowledge_too() -> None:
    ranges: Mapping[str, Range] = {"i": extent(s), "j": extent(t)}
    assert known_lt(i * t + j, s * t, ranges)
    assert known_le(0, i * t + j, ranges)
    prover = Prover(ranges)
    assert prover.prove(Predicate("lt", i * t + j, s * t)) is True
    assert prover.prove(Predicate("lt", i * t + j, s)) is None


def test_a_divisor_that_is_known_to_be_zero_proves_nothing() -> None:
    even = SymbolTable((SymbolInfo("s", divisor=2), SymbolInfo("t")))
    assert prove(Predicate("eq", t // (s % 2), 1), even) is None


def test_a_table_answers_by_name() -> None:
    assert table["s"].divisor == 8
    assert table.get("nope") is None
    assert "t" in table
    assert [info.name for info in table] == ["s", "t", "u", "i"]
    assert len(table) == 4
    assert table["i"].term is i
    assert table.ranges() == {"s": Range(1), "t": Range(0), "u": Range(), "i": Range(0, 9)}
    with pytest.raises(SymbolError, match="'nope' is not declared; declared: s, t, u, i"):
        table["nope"]


def test_tables_are_values() -> None:
    same = SymbolTable(table.infos, table.equalities)
    assert same == table
    assert hash(same) == hash(table)
    wider = table.add(SymbolInfo("f", "float", hint=0.5))
    assert len(table) == 4
    assert len(wider) == 5
    assert "f" not in wider.ranges()
    assert wider.replace_info(SymbolInfo("t", low=3)).ranges()["t"] == Range(3)
    assert table.restricted_to(frozenset({"s", "t"})) == SymbolTable(table.infos[:2])


def test_tables_refuse_contradictions() -> None:
    with pytest.raises(SymbolError, match="more than once: s"):
        table.add(SymbolInfo("s"))
    with pytest.raises(SymbolError, match="uses 'i0', which is not declared"):
        table.add_equality(symbol("i0"), s)
    with pytest.raises(SymbolError, match="leave no value for 'i'"):
        prove(Predicate("eq", i, 0), table.add_equality(i, 12))
    for bad in (
        {"low": 3, "high": 2},
        {"divisor": 0},
        {"kind": "complex"},
        {"kind": "float", "low": 0},
    ):
        with pytest.raises(SymbolError, match="symbol 'x'"):
            SymbolInfo("x", **bad)  # type: ignore[arg-type]  # what is tested


def test_hints() -> None:
    hinted = SymbolTable(
        (
            SymbolInfo("s", hint=128),
            SymbolInfo("t", low=0),
            SymbolInfo("u", low=2, high=30, divisor=8),
            SymbolInfo("i", low=9000, divisor=7),
        )
    )
    assert hinted.hint(s * 2 + 1) == 257
    assert hinted.hint(t) == DEFAULT_HINT
    assert hinted.hint(u) == 24
    assert hinted.hint(i) == 9002
    assert hinted.hint(5) == 5
    with pytest.raises(SymbolError, match="no value for symbol 'j'"):
        hinted.hint(j)


def test_hints_prove_nothing() -> None:
    hinted = SymbolTable((SymbolInfo("s", low=1, hint=128),))
    assert prove(Predicate("eq", s, 128), hinted) is None
    assert prove(Predicate("divides", 128, s), hinted) is None
