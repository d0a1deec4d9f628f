"""The table of reduction kinds: every row obeys the laws of its states, and NumPy's rows agree with the definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litz_ir import from_json, from_text, to_json
from litz_ir.dtypes import DType, b1, bf16, f32, f64, i64, u8
from litz_ir.errors import DTypeError, GraphError, SerialError
from litz_ir.interp import combine
from litz_ir.interp.encoding import Array, compute_type
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import (
    REDUCTION_KINDS,
    NamedCombiner,
    StateDefinition,
    UserCombiner,
    as_user_combiner,
    partial_results_combiner,
)
from litz_ir.plan import Accumulate, Kernel, ScanStore, with_user_combiners
from litz_ir.scalar.build import cast, load
from litz_ir.scalar.expr import Param
from litz_ir.scalar.node import Expr, walk
from litz_ir.target.cases import all_cases

COMBINING = [kind for kind in REDUCTION_KINDS.values() if kind.combines]
FINITE_ONLY = ("welford",)
"""Kinds that may give NaN or an infinity, by the order of elements, if one is not finite."""


def element_dtypes(name: str) -> Iterator[tuple[DType, ...]]:
    """The dtypes of elements that a kind accepts, of those that differ in their definition."""
    kind = REDUCTION_KINDS[name]
    for dtypes in product((f64, f32, i64, u8, b1), repeat=kind.inputs):
        try:
            kind.definition(dtypes)
        except DTypeError:
            continue
        yield dtypes


CASES = [(kind.name, dtypes) for kind in COMBINING for dtypes in element_dtypes(kind.name)]


def numbers(dtype: DType, special: bool) -> st.SearchStrategy[float | int | bool]:
    if dtype.is_bool:
        return st.booleans()
    if dtype.is_integer:
        return st.integers(0 if dtype == u8 else -100, 100)
    tenths = st.integers(-100, 100).map(lambda n: n / 10)
    return tenths | st.sampled_from([np.nan, np.inf, -np.inf]) if special else tenths


@st.composite
def elements(draw: st.DrawFn, name: str, dtypes: Sequence[DType], low: int, high: int) -> list[Array]:
    """The values of several elements."""
    count = draw(st.integers(low, high))
    special = name not in FINITE_ONLY
    return [
        np.array(draw(st.lists(numbers(d, special), min_size=count, max_size=count)), compute_type(d))
        for d in dtypes
    ]


def evaluated(exprs: Sequence[Expr], *params: Array) -> list[Array]:
    with np.errstate(all="ignore"):
        return combine.evaluate_params(exprs, params, {})


def assert_close(found: Sequence[Array], expected: Sequence[Array], rtol: float = 1e-9) -> None:
    for a, b in zip(found, expected, strict=True):
        assert np.allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True), (found, expected)


@pytest.mark.parametrize("name, dtypes", CASES)
def test_states_are_a_commutative_monoid(name: str, dtypes: tuple[DType, ...]) -> None:
    definition = REDUCTION_KINDS[name].definition(dtypes)
    tolerance = 1e-4 if f32 in dtypes else 1e-9

    def merged(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
        return evaluated(definition.merge, *a, *b)

    @settings(max_examples=20)
    @given(elements(name, dtypes, 3, 3))
    def check(values: list[Array]) -> None:
        a, b, c = (evaluated(definition.initial, *(value[k] for value in values)) for k in range(3))
        identity = evaluated(definition.identity)
        assert_close(merged(identity, a), a)
        assert_close(merged(a, identity), a)
        assert_close(merged(identity, identity), identity)
        assert_close(merged(a, b), merged(b, a), tolerance)
        assert_close(merged(merged(a, b), c), merged(a, merged(b, c)), tolerance)

    check()


@pytest.mark.parametrize("name, dtypes", CASES)
def test_a_definition_has_the_numbers_and_dtypes_of_its_row(name: str, dtypes: tuple[DType, ...]) -> None:
    kind = REDUCTION_KINDS[name]
    definition = kind.definition(dtypes)
    for exprs in (definition.identity, definition.initial, definition.merge):
        assert len(exprs) == kind.results
        assert tuple(each.dtype for each in exprs) == definition.dtypes
    assert params(definition.initial) <= {Param(k, dtype) for k, dtype in enumerate(dtypes)}
    assert params(definition.merge) <= set(state_params(definition))
    assert not params(definition.identity)


def params(exprs: Sequence[Expr]) -> set[Param]:
    return {node for node in walk(*exprs) if isinstance(node, Param)}


def state_params(definition: StateDefinition) -> Iterator[Param]:
    for k, dtype in enumerate(definition.dtypes * 2):
        yield Param(k, dtype)


@pytest.mark.parametrize("name, dtypes", CASES)
def test_partial_results_merge_to_the_result_of_all(name: str, dtypes: tuple[DType, ...]) -> None:
    kind = REDUCTION_KINDS[name]
    states = kind.definition(dtypes).dtypes
    last = partial_results_combiner(NamedCombiner(name), dtypes)
    assert isinstance(last, UserCombiner) != kind.merges_states

    @settings(max_examples=20)
    @given(elements(name, dtypes, 6, 6))
    def check(values: list[Array]) -> None:
        first = NamedCombiner(name)
        chunks = combine.reduce_last(first, [v.reshape(2, 3) for v in values], dtypes, states, {})
        whole = combine.reduce_last(first, values, dtypes, states, {})
        assert_close(combine.reduce_last(last, chunks, states, states, {}), whole, 1e-4)

    check()


@pytest.mark.parametrize("name, dtypes", CASES)
def test_numpy_agrees_with_the_definition(
    name: str, dtypes: tuple[DType, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    combiner, results = NamedCombiner(name), REDUCTION_KINDS[name].definition(dtypes).dtypes

    def both(values: list[Array]) -> list[list[Array]]:
        scan = [] if values[0].size == 0 else combine.scan_last(combiner, values, dtypes, results, {})
        return [combine.reduce_last(combiner, values, dtypes, results, {}), scan]

    @settings(max_examples=20)
    @given(elements(name, dtypes, 0, 7))
    def check(values: list[Array]) -> None:
        by_numpy = both(values)
        with monkeypatch.context() as context:
            context.setattr(combine, "NUMPY_REDUCTIONS", MappingProxyType({}))
            context.setattr(combine, "NUMPY_SCANS", MappingProxyType({}))
            by_definition = both(values)
        for found, expected in zip(by_definition, by_numpy, strict=True):
            assert_close(found, expected, 1e-5)

    check()


def test_a_combination_without_its_name_accumulates_in_f32() -> None:
    own, (state,) = as_user_combiner(NamedCombiner("sum"), (load("x", (0,), bf16),))
    assert own.identity[0].dtype == f32 and own.finish == (cast(Param(0, f32), bf16),)
    assert state.dtype == f32


def named(kernel: Kernel) -> set[str]:
    """The kinds that a kernel combines elements by."""
    statements = [each for phase in kernel.phases for each in phase.statements]
    combiners = [each.combiner for each in statements if isinstance(each, (Accumulate, ScanStore))]
    return {each.name for each in combiners if isinstance(each, NamedCombiner) and each.kind.combines}


def test_kernels_compute_the_same_without_names() -> None:
    cases = [case for case in all_cases() if named(case.kernel)]
    assert set[str]().union(*(named(case.kernel) for case in cases)) == {kind.name for kind in COMBINING}
    for case in cases:
        written_out = with_user_combiners(case.kernel, ())
        assert not named(written_out)
        expected, found = case.fresh(), case.fresh()
        run_kernel(case.kernel, expected, case.symbols)
        run_kernel(written_out, found, case.symbols)
        for name in found:
            assert case.difference(name, expected[name], found[name]) == "", case.name


def test_kinds_that_are_spelled_keep_their_names() -> None:
    (kernel,) = (case.kernel for case in all_cases() if case.name == "layer_norm")
    assert with_user_combiners(kernel, {"welford"}) == kernel
    assert named(with_user_combiners(kernel, {"sum"})) == set()


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(GraphError, match="unknown combiner 'median'") as raised:
        NamedCombiner("median")
    assert raised.value.hint == f"one of {', '.join(REDUCTION_KINDS)}"
    graph = from_text("graph g(%x: f32[4]) -> (%a) {\n  %a = reduce.sum f32[ | r: 4] { %x[r] }\n}")
    text = to_json(graph)
    assert json.loads(text)["kind"] == "LoopGraph"
    with pytest.raises(SerialError, match="unknown combiner 'median'"):
        from_json(text.replace('"sum"', '"median"'))


def test_a_sort_is_no_combination() -> None:
    with pytest.raises(GraphError, match="not a combination"):
        REDUCTION_KINDS["sort"].definition((i64,))
