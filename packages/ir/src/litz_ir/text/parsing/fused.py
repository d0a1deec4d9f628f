"""Parser of fused graphs."""

from __future__ import annotations

from typing import cast, get_args

from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph, Group, Member, StorageClass
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.text.lexer import Stream, read_whole, separated
from litz_ir.text.parsing.bodies import BodyParser
from litz_ir.text.parsing.loops import graph
from litz_ir.text.parsing.types import axes, term
from litz_ir.text.scope import DTypeScope, graph_scope

_STORAGE_CLASSES: tuple[str, ...] = get_args(StorageClass)
"""Names of the storage classes."""


def parse_fused(text: str) -> FusedGraph:
    """Parse the text form of a fused graph; raises :class:`ParseError`."""
    return read_whole(text, fused)


def fused(stream: Stream) -> FusedGraph:
    """A fused graph: ``fused { graph groups decisions }``."""
    stream.expect("fused")
    stream.expect("{")
    loops = graph(stream)
    scope = graph_scope(loops)
    groups: list[Group] = []
    while stream.at("group"):
        groups.append(_group(stream, scope))
    parsed_decisions = decisions(stream)
    stream.expect("}")
    return FusedGraph(loops, tuple(groups), parsed_decisions)


def decisions(stream: Stream) -> tuple[Decision, ...]:
    """Any number of ``decision …`` lines; the first one with a reason gives its sentence."""
    found: list[Decision] = []
    reasons: dict[str, Reason] = {}
    while stream.accept("decision"):
        stage = stream.name("a stage")
        verdict = stream.name("a verdict")
        subject = stream.string("a subject")
        key = stream.name("a reason")
        if stream.token.kind == "string" or key not in reasons:
            reasons[key] = Reason(key, stream.string(f"the sentence of the reason {key}"))
        nbytes = term(stream) if stream.accept("bytes") else 0
        note = stream.string("a note") if stream.accept("note") else ""
        found.append(Decision(stage, subject, verdict, reasons[key], nbytes, note))
    return tuple(found)


def _group(stream: Stream, scope: DTypeScope) -> Group:
    stream.expect("group")
    name = stream.name("the group's name")
    outer, inner = axes(stream)
    stream.expect("in")
    reads = separated(stream, stream.value)
    stream.expect("out")
    writes = separated(stream, stream.value)
    stream.expect("{")
    members: list[Member] = []
    while stream.at("run"):
        members.append(_member(stream, scope))
    storage_classes: list[tuple[str, StorageClass]] = []
    while not stream.accept("}"):
        storage_class = cast(StorageClass, stream.word("a member (run) or a storage class", _STORAGE_CLASSES))
        storage_classes.append((stream.value(), storage_class))
        while stream.accept(","):
            storage_classes.append((stream.value(), storage_class))
    return Group(name, outer, inner or (), tuple(members), tuple(storage_classes), reads, writes)


def _member(stream: Stream, scope: DTypeScope) -> Member:
    stream.expect("run")
    operation = stream.value()
    stream.expect("phase")
    phase = stream.integer()
    inner = stream.accept("inner")
    index: tuple[Size, ...] = ()
    bodies: tuple[Expr, ...] = ()
    if stream.accept("at"):
        index = BodyParser(stream, scope).terms()
    if stream.at("{"):
        bodies = BodyParser(stream, scope).block()
    return Member(operation, phase, inner, index, bodies)
