"""Structured control flow over whatever runs a subgraph.

What a region's arguments are, by kind (tuples are nested arguments, anything else is one operand):

- ``cond``: a truth value, then the operands; the first subgraph runs if it is true, else the second.
- ``while_loop``: a tuple of carried values, then perhaps a tuple of others; the first subgraph gives the condition, the
  second the next carried values, and both take the carried values followed by the others. Where the body never runs,
  the results are copies.
- ``while_stack``: the same, but the results are the carried values after each step, stacked; where the body never runs,
  the initial ones in a stack of one.
- ``scan``: tuples of initial carried values, of tensors to go along (their first dimension) and perhaps of others; the
  subgraph takes carried values, one row of each tensor and the others, and gives the next carried values followed by
  rows, which are stacked.
- ``invoke``: the operands of the one subgraph.
- ``keep``: the same. The subgraph is pure and its operands seldom change: whoever runs it may keep the results for the
  next time that it meets the same operands with the same elements. They may have forms that only routines can read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from litz_ir.errors import GraphError

Runner = Callable[[Sequence[Any]], Sequence[Any]]
"""Runs a subgraph on its inputs and gives its outputs."""


class RegionTensors(Protocol):
    """What control flow itself does with tensors."""

    def stack(self, tensors: Sequence[Any]) -> Any:
        """Equally shaped tensors along a new first dimension."""

    def copy(self, tensor: Any) -> Any:
        """The same elements in memory of their own."""


def run_region(
    kind: str, runners: Sequence[Runner], arguments: Sequence[Any], tensors: RegionTensors
) -> list[Any]:
    """The results of a region."""
    match kind:
        case "cond":
            return list(runners[0 if bool(arguments[0]) else 1](_flat(arguments[1:])))
        case "invoke" | "frozen":
            return list(runners[0](_flat(arguments)))
        case "while_loop":
            return _while(runners[0], runners[1], arguments, tensors)
        case "while_stack":
            return _while_stack(runners[0], runners[1], arguments, tensors)
        case "scan":
            return _scan(runners[0], arguments, tensors)
    raise GraphError(f"unknown kind of region {kind!r}")


def _while(condition: Runner, body: Runner, arguments: Sequence[Any], tensors: RegionTensors) -> list[Any]:
    initial, others = _parts(arguments, 2)
    carried = initial
    while bool(condition([*carried, *others])[0]):
        carried = list(body([*carried, *others]))
    return [tensors.copy(value) for value in initial] if carried is initial else carried


def _while_stack(
    condition: Runner, body: Runner, arguments: Sequence[Any], tensors: RegionTensors
) -> list[Any]:
    carried, others = _parts(arguments, 2)
    steps: list[Sequence[Any]] = []
    while bool(condition([*carried, *others])[0]):
        carried = list(body([*carried, *others]))
        steps.append(carried)
    return [tensors.stack(column) for column in zip(*(steps or [carried]))]


def _scan(runner: Runner, arguments: Sequence[Any], tensors: RegionTensors) -> list[Any]:
    carried, along, others = _parts(arguments, 3)
    if not along or len(along[0]) == 0:
        raise GraphError("a scan goes along nothing", hint="the tensors to go along need at least one row")
    rows: list[Sequence[Any]] = []
    for step in range(len(along[0])):
        found = list(runner([*carried, *(tensor[step] for tensor in along), *others]))
        carried, row = found[: len(carried)], found[len(carried) :]
        rows.append(row)
    return [*carried, *(tensors.stack(column) for column in zip(*rows))]


def _parts(arguments: Sequence[Any], count: int) -> list[list[Any]]:
    if arguments and not any(isinstance(argument, tuple) for argument in arguments):
        arguments = (tuple(arguments),)
    return [list(arguments[k]) if k < len(arguments) else [] for k in range(count)]


def _flat(arguments: Sequence[Any]) -> list[Any]:
    operands: list[Any] = []
    for argument in arguments:
        operands.extend(_flat(argument) if isinstance(argument, tuple) else [argument])
    return operands
