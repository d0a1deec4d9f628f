"""Shrinks a failing program: statements, results, arguments and modes that do not matter are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from differential.programs import Program, Statement

P = TypeVar("P")


def shrunk(program: P, smaller: Callable[[P], Iterable[P]], wrong: Callable[[P], bool], *, budget: int) -> P:
    """Shrink a program that is ``wrong``, in at most ``budget`` runs. ``smaller`` gives programs that are one step
    simpler, the largest steps first."""
    trials = 0
    while True:
        for candidate in smaller(program):
            trials += 1
            if trials > budget:
                return program
            if wrong(candidate):
                program = candidate
                break
        else:
            return program


def smaller_programs(program: Program) -> Iterator[Program]:
    """Yield programs that are one step simpler, the largest steps first."""
    count = len(program.statements)
    size = count // 2
    while size:
        for start in range(0, count, size):
            yield from _without(program, set(range(start, min(start + size, count))))
        size //= 2
    if len(program.outputs) > 1:
        for k in range(len(program.outputs)):
            yield replace(program, outputs=program.outputs[:k] + program.outputs[k + 1 :])
    if program.dynamic:
        yield replace(program, dynamic=False)
    if program.mode != "plain":
        yield replace(program, mode="plain", bases=tuple(replace(b, leaf=False) for b in program.bases))
    for k, item in enumerate(program.inputs):
        if all(item.name not in line for line in (*(s.line for s in program.statements), *program.outputs)):
            inputs = program.inputs[:k] + program.inputs[k + 1 :]
            kept = {other.base for other in inputs}
            if inputs:
                yield replace(program, inputs=inputs, bases=tuple(b for b in program.bases if b.name in kept))


def _without(program: Program, gone: set[int]) -> Iterator[Program]:
    """Return the program without some statements. Names that they define stand for their operand, where there is
    one."""
    defined = {s.target for k, s in enumerate(program.statements) if k in gone and s.target}
    outputs = tuple(name for name in program.outputs if name not in defined)
    if outputs:
        yield replace(program.without(gone), outputs=outputs)
    if len(gone) == 1:
        (k,) = gone
        statement = program.statements[k]
        if statement.target and statement.text.isalnum():
            renamed = (statement.text if name == statement.target else name for name in program.outputs)
            yield replace(program.without(gone), outputs=tuple(renamed))
        base = statement.text.split(".")[0].split("[")[0]
        if statement.target and base.isalnum() and base != statement.text:
            same = Statement(base, target=statement.target)
            yield replace(program, statements=(*program.statements[:k], same, *program.statements[k + 1 :]))
