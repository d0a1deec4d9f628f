"""Hypothesis strategies for fused graphs, kernels and plans, all of which can be printed, parsed and serialised.

Not every generated program is valid.
"""

from __future__ import annotations

import dataclasses
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from ir_strategies import (
    DEVICES,
    DTYPES,
    ERRORS,
    NAMES,
    SYMBOLS,
    TEXTS,
    VALUES,
    arguments,
    attributes,
    axes,
    combiners,
    exprs,
    indirect_terms,
    inputs,
    loop_graphs,
    origins,
    outputs,
    plain_terms,
    region_kinds,
    symbol_infos,
    tables,
    tuples,
    types,
    values,
)

from litz_ir.dtypes import b1
from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph, Group, Member
from litz_ir.plan import kernel as k
from litz_ir.plan import program as p
from litz_ir.plan import schedule as s

decisions = st.builds(Decision, NAMES, TEXTS, NAMES, st.builds(Reason, NAMES, TEXTS), plain_terms, TEXTS)
members = st.builds(
    Member, VALUES, st.integers(0, 3), st.booleans(), tuples(indirect_terms()), tuples(exprs(None, 2))
)
groups = st.builds(
    Group,
    NAMES,
    axes,
    axes,
    tuples(members),
    tuples(st.tuples(VALUES, st.sampled_from(("inline", "register", "scratch", "store"))), 0, 4),
    tuples(VALUES),
    tuples(VALUES),
)
fused_graphs = st.builds(FusedGraph, loop_graphs(0), tuples(groups), tuples(decisions))

statements = st.one_of(
    st.builds(
        k.Store, VALUES, indirect_terms(), exprs(), st.sampled_from(("set", "add", "mul", "min", "max"))
    ),
    st.builds(k.Accumulate, tuples(st.tuples(VALUES, DTYPES)), combiners, tuples(exprs())),
    st.builds(k.ScanStore, combiners, tuples(exprs()), tuples(st.tuples(VALUES, indirect_terms()))),
)


def fields_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of the type of a schedule's field, or schedules of a form."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        least = [mark.value for mark in args if isinstance(mark, s.AtLeast)]
        return st.sampled_from((0, 1, 4, 64)).filter(lambda n: n >= least[0]) if least else VALUES
    if origin is Literal:
        return st.sampled_from(args)
    if origin is UnionType:
        return st.one_of(map(fields_of, args))
    if origin is tuple and args[-1] is Ellipsis:
        return tuples(fields_of(args[0]), 0, 2)
    if origin is tuple:
        return st.tuples(*map(fields_of, args))
    if dataclasses.is_dataclass(hint):
        return st.builds(
            hint,
            **{name: fields_of(each) for name, each in get_type_hints(hint, include_extras=True).items()},
        )
    return {int: st.integers(0, 64), bool: st.booleans(), str: NAMES, NoneType: st.none()}[hint]


schedules = st.one_of(map(fields_of, get_args(s.Schedule)))


@st.composite
def kernels(draw: st.DrawFn, depth: int = 1) -> k.Kernel:
    access = st.sampled_from(get_args(k.Access))
    return k.Kernel(
        draw(NAMES),
        draw(tuples(st.builds(k.Parameter, VALUES, DTYPES, access, st.sampled_from((1, 64))))),
        tuple(draw(symbol_infos(name)) for name in draw(st.lists(st.sampled_from(SYMBOLS), max_size=2))),
        draw(axes),
        draw(tuples(st.builds(k.ScratchArray, VALUES, DTYPES, st.integers(0, 64) | plain_terms))),
        draw(tuples(st.builds(k.Phase, axes, tuples(statements)))),
        draw(schedules),
        draw(tuples(subkernels(depth - 1), 0, 2)) if depth else (),
    )


def subkernels(depth: int) -> st.SearchStrategy[k.Subkernel]:
    invocations = st.builds(k.Invocation, tuples(VALUES), tuples(plain_terms))
    return st.builds(k.Subkernel, kernels(depth), tuples(invocations))


def steps() -> st.SearchStrategy[p.Step]:
    sources = st.tuples(st.sampled_from(("size", "stride", "argument")), VALUES, st.integers(0, 2))
    kinds: list[st.SearchStrategy[p.Step]] = [
        st.builds(p.Allocate, NAMES),
        st.builds(p.Free, NAMES),
        st.builds(
            p.Launch,
            NAMES,
            tuples(VALUES),
            tuples(plain_terms),
            tuples(st.builds(k.KernelOrigin, NAMES, origins, st.integers(0, 3))),
        ),
        st.builds(
            p.CallStep,
            NAMES,
            tuples(arguments),
            attributes,
            tuples(st.none() | VALUES),
            st.booleans(),
            TEXTS,
            origins,
            tuples(VALUES),
        ),
        st.builds(p.DefineStep, st.sampled_from(SYMBOLS), sources | exprs()),
        st.builds(p.CheckStep, exprs(b1), TEXTS, ERRORS, origins),
    ]
    kinds.append(
        st.builds(p.RegionStep, region_kinds, tuples(NAMES), tuples(arguments), tuples(VALUES), origins)
    )
    return st.one_of(kinds)


@st.composite
def plans(draw: st.DrawFn, depth: int = 1) -> p.Plan:
    placements = st.builds(p.Placement, types(), st.none() | NAMES, plain_terms, st.none() | VALUES)
    return p.Plan(
        draw(NAMES),
        draw(DEVICES),
        draw(TEXTS),
        draw(tables()),
        draw(tuples(inputs)),
        draw(tuples(values)),
        draw(tuples(st.tuples(VALUES, placements))),
        draw(tuples(st.builds(p.Storage, NAMES, plain_terms, DEVICES))),
        draw(tuples(kernels())) if depth else (),
        draw(tuples(steps(), 0, 3)),
        draw(tuples(outputs)),
        draw(plain_terms),
        draw(tuples(decisions)),
        draw(tuples(plans(depth - 1), 0, 2)) if depth else (),
        draw(tuples(NAMES, 0, 2)),
    )
