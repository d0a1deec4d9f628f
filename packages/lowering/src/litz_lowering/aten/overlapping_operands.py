"""Writes whose operands share memory in a way that eager refuses, which no meta kernel checks: eager is asked.

``x[:-1].add_(x[1:])`` raises in eager, since its result would depend on the order of the elements. AOTAutograd traces
it as if the right operand were a copy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import BuiltinFunctionType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils._pytree import tree_leaves

from litz_ir.errors import UnsupportedOperation
from litz_lowering.aten.eager_checks import RefusedByEager
from litz_lowering.aten.sample_calls import call_unobserved
from litz_lowering.types.symbols_io import hint_of

_REFUSAL = "single memory location"
"""Text of eager's errors about operands that share memory."""

_MOST_BYTES = 1 << 30
"""Most memory of the operands of a call that is made."""

_WRITING_OPERATORS = frozenset(
    {
        operator.setitem, operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul,
        operator.imod, operator.imul, operator.ior, operator.ipow, operator.irshift, operator.isub,
        operator.itruediv, operator.ixor,
    }
)  # fmt: skip
"""Python's operators that write their first operand."""


class _Skipped(Exception):
    """Raised for an operand that no call is made with."""


def refuse_overlapping_operands(gm: GraphModule) -> None:
    """Raise :class:`RefusedByEager` where eager refuses a write of a captured graph since its operands share memory.

    Raises :class:`UnsupportedOperation` where eager accepts a write to an expanded tensor, which AOTAutograd mistraces.
    Values of nodes are fake tensors, which share storages as the program's tensors do in the traced call. Operands of
    more than a gibibyte are not asked about.
    """
    for node in gm.graph.nodes:
        if not _writes(node):
            continue
        operands = _Operands()
        try:
            args, kwargs = map_arg((node.args, dict(node.kwargs)), operands.value)
            repeats = any(map(_repeats_elements, tree_leaves(kwargs.get("out", args[:1]))))
            if not (repeats or operands.share_memory()) or operands.byte_count() > _MOST_BYTES:
                continue
            args, kwargs = operands.with_memory(args, kwargs)
            error = _error(node, args, kwargs)
        except _Skipped:
            continue
        if error is not None:
            raise RefusedByEager(node.name, error)
        if node.target is operator.setitem:
            repeats = repeats and _repeats_elements(args[0][args[1]])
        if repeats and not _writes_metadata(node):
            raise UnsupportedOperation(
                "a write to a tensor some of whose elements have one memory location, which torch traces as a sum",
                stage="capture",
                node=node.name,
                hint="write to the tensor before it is expanded",
            )


def _writes(node: Node) -> bool:
    """Report whether a node is a call of torch or of Python's operators that may overwrite an operand."""
    target = node.target
    if node.op == "call_method":
        return _is_name_of_write(str(target))
    if node.op != "call_function":
        return False
    if isinstance(target, OpOverload):
        return target.namespace == "aten" and target._schema.is_mutable
    if not isinstance(target, BuiltinFunctionType | OpOverloadPacket):
        return False
    return target in _WRITING_OPERATORS or "out" in node.kwargs or _is_name_of_write(target.__name__)


def _writes_metadata(node: Node) -> bool:
    """Report whether a node changes the sizes and strides of a tensor alone, as ``unsqueeze_`` does."""
    packet = getattr(torch.ops.aten, getattr(node.target, "__name__", str(node.target)), None)
    overloads = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    return any(torch.Tag.inplace_view in overload.tags for overload in overloads)


def _is_name_of_write(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


class _Operands:
    """Operands of a node: tensors of the traced call, and tensors of zeros on a CPU that share memory as these do."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def value(self, node: Node) -> Any:
        """Return the value of a node in the traced call; raise ``_Skipped`` for one that no call is made with."""
        value = node.meta.get("example_value", node.meta.get("val"))
        for leaf in tree_leaves(value):
            if isinstance(leaf, FakeTensor) and leaf.layout == torch.strided:
                self._ranges.setdefault(_storage(leaf), []).append(_range(leaf))
            elif not isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise _Skipped
        return value

    def share_memory(self) -> bool:
        """Report whether two tensors share bytes."""
        pairs = (pair for ranges in self._ranges.values() for pair in pairwise(sorted(ranges)))
        return any(end > following for (_, end), (following, _) in pairs)

    def byte_count(self) -> int:
        """Return the size of the memory of the operands."""
        return sum(max(end for _, end in ranges) for ranges in self._ranges.values())

    def with_memory(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return arguments with tensors that have elements, and numbers instead of symbols."""
        memory = {
            key: torch.zeros(max(end for _, end in ranges), dtype=torch.uint8, device="cpu").untyped_storage()
            for key, ranges in self._ranges.items()
        }

        def tensor(fake: torch.Tensor) -> torch.Tensor:
            layout = (_hint(fake.storage_offset()), _hints(fake.shape), _hints(fake.stride()))
            return torch.empty(0, dtype=fake.dtype, device="cpu").set_(memory[_storage(fake)], *layout)

        found: tuple[Any, Any] = map_aggregate(
            (args, kwargs), lambda leaf: tensor(leaf) if isinstance(leaf, torch.Tensor) else _number(leaf)
        )
        return found


def _repeats_elements(written: Any) -> bool:
    """Report whether a value is a tensor some of whose elements have one memory location, as expanded ones have."""
    if not isinstance(written, torch.Tensor):
        return False
    shape = _hints(written.shape)
    return 0 not in shape and any(
        n > 1 and stride == 0 for n, stride in zip(shape, written.stride(), strict=True)
    )


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor in its storage and the one after its last."""
    shape, first = _hints(tensor.shape), _hint(tensor.storage_offset())
    steps = zip(shape, _hints(tensor.stride()), strict=True)
    last = first + sum((size - 1) * stride for size, stride in steps)
    return first * tensor.itemsize, (first if 0 in shape else last + 1) * tensor.itemsize


def _hints(sizes: Iterable[int | torch.SymInt]) -> list[int]:
    return [_hint(size) for size in sizes]


def _hint(size: int | torch.SymInt) -> int:
    """Return the value of a size in the traced call; raise ``_Skipped`` where it is not known."""
    value = hint_of(size)
    if value is None:
        raise _Skipped
    return value


def _number(leaf: Any) -> Any:
    """Return the value of a symbolic number in the traced call; other values unchanged."""
    if not isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        return leaf
    if not leaf.node.has_hint():
        raise _Skipped
    return leaf.node.hint


def _error(node: Node, args: Any, kwargs: Any) -> Exception | None:
    """Return the error that eager raises since operands share memory; ``None`` for none and for other errors."""
    call: Callable[..., Any] = getattr(args[0], node.target) if isinstance(node.target, str) else node.target
    given = args[1:] if isinstance(node.target, str) else args

    def refusal() -> Exception | None:
        try:
            call(*given, **kwargs)
        except Exception as error:
            return error.with_traceback(None) if _REFUSAL in str(error) else None
        return None

    with torch.random.fork_rng(devices=()):
        return call_unobserved(refusal)
