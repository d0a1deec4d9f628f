"""Execution of regions over any executor of their subgraphs.

The arguments of a region, by kind (tuples are nested arguments, any other argument is one operand):

- ``cond``: a truth value, then the operands. The first subgraph runs if it is true, else the second.
- ``while_loop``: a tuple of carried values, then optionally a tuple of other operands. The first subgraph gives the
  condition, the second the next carried values; both take the carried values followed by the others. If the body never
  runs, the results are copies.
- ``while_stack``: the same, but the results are the carried values after each step, stacked; if the body never runs,
  the initial ones in a stack of one.
- ``scan``: tuples of initial carried values, of tensors to iterate over (along their first dimension) and optionally of
  other operands. The subgraph takes carried values, one row of each tensor and the others, and gives the next carried
  values followed by rows, which are stacked.
- ``invoke``: the operands of the one subgraph.
- ``frozen``: the same. The subgraph is pure and its operands seldom change: an executor may store the results and reuse
  them while it gets the same operands with the same elements. They may have formats that only routines can read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from litz_ir.errors import GraphError

Runner = Callable[[Sequence[Any]], Sequence[Any]]
"""A function that runs a subgraph on its inputs and returns its outputs."""


class RegionTensors(Protocol):
    """Operations on tensors that regions need."""

    def stack(self, tensors: Sequence[Any]) -> Any:
        """Tensors of one shape, stacked along a new first dimension."""

    def copy(self, tensor: Any) -> Any:
        """The same elements in new memory."""

    def truth(self, value: Any) -> bool:
        """The truth of a 0-d tensor or a number: it differs from zero."""

    def rows(self, tensor: Any) -> Sequence[Any]:
        """The elements of a tensor along its first dimension."""


def run_region(
    kind: str, runners: Sequence[Runner], arguments: Sequence[Any], tensors: RegionTensors
) -> list[Any]:
    """The results of a region."""
    match kind:
        case "cond":
            return list(runners[0 if tensors.truth(arguments[0]) else 1](_flat(arguments[1:])))
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
    initial, others = _argument_groups(arguments, 2)
    carried = initial
    while tensors.truth(condition([*carried, *others])[0]):
        carried = list(body([*carried, *others]))
    return [tensors.copy(value) for value in initial] if carried is initial else carried


def _while_stack(
    condition: Runner, body: Runner, arguments: Sequence[Any], tensors: RegionTensors
) -> list[Any]:
    carried, others = _argument_groups(arguments, 2)
    steps: list[Sequence[Any]] = []
    while tensors.truth(condition([*carried, *others])[0]):
        carried = list(body([*carried, *others]))
        steps.append(carried)
    return [tensors.stack(column) for column in zip(*(steps or [carried]))]


def _scan(runner: Runner, arguments: Sequence[Any], tensors: RegionTensors) -> list[Any]:
    carried, iterated, others = _argument_groups(arguments, 3)
    columns = [tensors.rows(tensor) for tensor in iterated]
    if not columns or len(columns[0]) == 0:
        raise GraphError("a scan has no rows", hint="the tensors that it iterates over need at least one row")
    rows: list[Sequence[Any]] = []
    for step in range(len(columns[0])):
        found = list(runner([*carried, *(column[step] for column in columns), *others]))
        carried, row = found[: len(carried)], found[len(carried) :]
        rows.append(row)
    return [*carried, *(tensors.stack(column) for column in zip(*rows))]


def _argument_groups(arguments: Sequence[Any], count: int) -> list[list[Any]]:
    if arguments and not any(isinstance(argument, tuple) for argument in arguments):
        arguments = (tuple(arguments),)
    return [list(arguments[k]) if k < len(arguments) else [] for k in range(count)]


def _flat(arguments: Sequence[Any]) -> list[Any]:
    operands: list[Any] = []
    for argument in arguments:
        operands.extend(_flat(argument) if isinstance(argument, tuple) else [argument])
    return operands
