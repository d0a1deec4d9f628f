"""Printer of fused graphs."""

from __future__ import annotations

from collections.abc import Iterable

from litz_ir.fused.decision import Decision
from litz_ir.fused.group import FusedGraph, Group, Member, StorageClass
from litz_ir.text.printing.bodies import BodyPrinter, print_term
from litz_ir.text.printing.loops import graph_lines, values_text
from litz_ir.text.printing.types import INDENT, WIDTH, axes_text, braced, indented
from litz_ir.text.scope import DTypeScope, graph_scope
from litz_ir.text.spelling import name_text, string_text, value_text


def print_fused(fused: FusedGraph) -> str:
    """The text form of a fused graph, which :func:`litz_ir.text.parsing.fused` parses."""
    return "\n".join(_fused_lines(fused)) + "\n"


def _fused_lines(fused: FusedGraph) -> list[str]:
    """The lines of a fused graph, not indented."""
    scope = graph_scope(fused.graph)
    lines = graph_lines(fused.graph)
    for group in fused.groups:
        lines += _group_lines(group, scope)
    lines += decision_lines(fused.decisions)
    return ["fused {", *indented(lines), "}"]


def decision_lines(decisions: Iterable[Decision]) -> list[str]:
    """The lines of decisions, with the sentence of each reason at the first decision that has it."""
    lines: list[str] = []
    sentences: dict[str, str] = {}
    for decision in decisions:
        key, sentence = decision.reason.key, decision.reason.sentence
        lines.append(_decision_text(decision, is_new=sentences.get(key) != sentence))
        sentences[key] = sentence
    return lines


def _decision_text(decision: Decision, *, is_new: bool) -> str:
    """The text of a decision: ``decision stage verdict "subject" reason "sentence" bytes 4096 note "…"``."""
    text = (
        f"decision {name_text(decision.stage)} {name_text(decision.verdict)} {string_text(decision.subject)}"
    )
    text += f" {name_text(decision.reason.key)}"
    if is_new:
        text += f" {string_text(decision.reason.sentence)}"
    if decision.bytes != 0:
        text += f" bytes {print_term(decision.bytes)}"
    return text + (f" note {string_text(decision.note)}" if decision.note else "")


def _group_lines(group: Group, scope: DTypeScope) -> list[str]:
    head = f"group {name_text(group.name)} {axes_text(group.outer, group.inner)}"
    head += f" in ({values_text(group.reads)}) out ({values_text(group.writes)})"
    lines = [line for member in group.members for line in _member_lines(member, scope)]
    return [f"{head} {{", *indented([*lines, *_storage_class_lines(group.storage_classes)]), "}"]


def _member_lines(member: Member, scope: DTypeScope) -> list[str]:
    text = f"run {value_text(member.operation)} phase {member.phase}" + (" inner" if member.inner else "")
    if member.index:
        text += f" at [{', '.join(map(BodyPrinter((), scope).term, member.index))}]"
    if not member.bodies:
        return [text]
    printer = BodyPrinter(member.bodies, scope)
    bodies = [printer.root(body) for body in member.bodies]
    block = braced(printer.lets(), bodies, width=WIDTH - len(text) - 2 * len(INDENT))
    return [f"{text} {block[0]}", *block[1:]]


def _storage_class_lines(storage_classes: tuple[tuple[str, StorageClass], ...]) -> list[str]:
    """One line for each run of values of one storage class."""
    lines: list[str] = []
    last: StorageClass | None = None
    for name, storage_class in storage_classes:
        if storage_class == last:
            lines[-1] += f", {value_text(name)}"
        else:
            lines.append(f"{storage_class} {value_text(name)}")
        last = storage_class
    return lines
