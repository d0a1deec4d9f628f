"""Operators that overwrite their arguments, from ``auto_functionalized`` wrappers and Triton kernels.

AOTAutograd wraps them so that they return new versions. Here they overwrite again: the argument's own memory
where no later operation needs it, else that of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from litz_ir.loops import Argument, Call, Extern, Layout, Ref, StridedRef, TensorType, Value, is_dense
from litz_ir.symbols import Size, add, mul
from litz_lowering.aten.fallback import NOT_ATEN, order_token, required_layout
from litz_lowering.contexts.context import Declined, Lowered, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.contexts.values import fixed
from litz_lowering.types.shared_memory import may_share_memory

_COPY_WITH_STRIDES = "copy_with_strides"
_TRITON_KERNEL = "triton_kernel"


@rule("higher_order.auto_functionalized")
def auto_functionalized(ctx: LoweringContext, operator: Any, **kwargs: Any) -> Lowered | Declined:
    """The operator's results, then the new version of each argument that it overwrites, in schema order."""
    if not isinstance(operator, torch._ops.OpOverload):
        return Declined("auto_functionalized wraps a higher-order operator")
    memory = _Memory(ctx)
    arguments = operator._schema.arguments
    written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    given = {a.name: a.default_value for a in arguments} | kwargs
    given |= {name: memory.of(ctx.node.kwargs.get(name), given[name]) for name in written}
    results = _call(ctx, operator, given, memory)
    return (*results, *(memory.newest(given[name]) for name in written))


@rule("higher_order.auto_functionalized_v2")
def auto_functionalized_v2(ctx: LoweringContext, operator: Any, **kwargs: Any) -> Lowered | Declined:
    """The operator's results, then the new version of each tensor that it overwrites at least in part."""
    if not isinstance(operator, torch._ops.OpOverload):
        return Declined("auto_functionalized wraps a higher-order operator")
    memory = _Memory(ctx)
    out_tag = getattr(torch.Tag, "out", None)  # since torch 2.12
    if out_tag in operator.tags:
        return _into_new(ctx, operator, kwargs, memory)
    nodes: Any = ctx.node.kwargs["_all_bases"]
    bases = [memory.of(node, tensor) for node, tensor in zip(nodes, kwargs["_all_bases"], strict=True)]
    offsets = [ctx.builder.symbols.size(node.meta["val"].storage_offset()) for node in nodes]
    given = {
        a.name: _parts(f"_{a.name}", list(zip(bases, offsets, strict=True)), kwargs)
        if a.alias_info is not None and a.alias_info.is_write
        else kwargs[a.name]
        for a in operator._schema.arguments
    }
    return (*_call(ctx, operator, given, memory), *map(memory.newest, bases))


def _into_new(
    ctx: LoweringContext, operator: torch._ops.OpOverload, kwargs: Mapping[str, Any], memory: _Memory
) -> Lowered:
    """Call an ``out`` variant with newly allocated tensors."""
    given: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        name = argument.name
        if name in kwargs:
            given[name] = kwargs[name]
            continue
        shape, strides = kwargs[f"_{name}_size"], kwargs[f"_{name}_stride"]
        kind = TensorType(
            kwargs[f"_{name}_dtype"], shape, Layout(strides, fixed=True), kwargs[f"_{name}_device"]
        )
        given[name] = memory.fresh(kind, name)
    _call(ctx, operator, given, memory)
    results = tuple(memory.newest(given[name]) for name in given if name not in kwargs)
    return results if len(results) > 1 else results[0]


@rule("higher_order.triton_kernel_wrapper_functional")
def triton_kernel(
    ctx: LoweringContext,
    *,
    kernel_idx: int,
    constant_args_idx: int,
    grid: Any,
    tma_descriptor_metadata: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    tensors_to_clone: Sequence[str],
) -> Any:
    """Call a user's Triton kernel; returns new versions of the tensors that it overwrites, by parameter."""
    if tma_descriptor_metadata:
        return Declined("the Triton kernel takes tensor descriptors")
    memory = _Memory(ctx)
    nodes: Any = ctx.node.kwargs["kwargs"]
    given = {**kwargs, **{name: memory.of(nodes[name], kwargs[name]) for name in tensors_to_clone}}
    ctx.append(
        Extern(
            results=memory.versions,
            target=_TRITON_KERNEL,
            arguments=(kernel_idx, constant_args_idx, ctx.argument(grid)),
            attributes=tuple((name, ctx.argument(value)) for name, value in given.items()),
            mutates=memory.pairs,
            layout_requirement="exact",
            unreturned=tuple(v.name for v in memory.versions),
            reason="the operator is a Triton kernel of the user",
            origin=ctx.origin,
        )
    )
    memory.close()
    return {name: memory.newest(given[name]) for name in tensors_to_clone}


class _Memory:
    """Tensors that one call overwrites, in memory that may be overwritten, and their new versions."""

    def __init__(self, ctx: LoweringContext) -> None:
        self.ctx = ctx
        self._versions: dict[str, Value] = {}

    def of(self, node: Any, given: Any) -> Any:
        """Tensor, sequence or None to pass to the call instead of ``given``, the value of ``node``."""
        if isinstance(given, tuple):
            return tuple(self.of(each, tensor) for each, tensor in zip(node, given, strict=True))
        if not isinstance(given, Tensor):
            return given
        tensor = given
        if given.name in self._versions or not _may_overwrite(self.ctx, node, given):
            tensor = _copy(self.ctx, given)
        return self._register(tensor)

    def fresh(self, kind: TensorType, name: str) -> Tensor:
        """Allocate uninitialised memory."""
        value = self.ctx.value(kind, name)
        self.ctx.append(
            Extern(
                results=(value,),
                target="aten.empty_strided.default",
                arguments=(kind.shape, kind.layout.strides),
                attributes=(("dtype", kind.dtype), ("device", kind.device)),
                reason="the operator writes to new memory",
                origin=self.ctx.origin,
            )
        )
        return self._register(Tensor(value))

    def _register(self, tensor: Tensor) -> Tensor:
        version = Value(self.ctx.builder.unique(tensor.name), tensor.type, replaces=tensor.name)
        self._versions[tensor.name] = version
        return tensor

    @property
    def versions(self) -> tuple[Value, ...]:
        return tuple(self._versions.values())

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Names of each tensor before and after the call."""
        return tuple((old, version.name) for old, version in self._versions.items())

    def newest(self, given: Any) -> Any:
        """New version of an argument that :meth:`of` returned."""
        if isinstance(given, tuple):
            return tuple(map(self.newest, given))
        return Tensor(self._versions[given.name]) if isinstance(given, Tensor) else given

    def close(self) -> None:
        """Redirect later reads to the new versions."""
        for name, version in self._versions.items():
            self.ctx.builder.redirect(name, Tensor(version))


def _call(
    ctx: LoweringContext, operator: torch._ops.OpOverload, given: Mapping[str, Any], memory: _Memory
) -> tuple[Lowered, ...]:
    """Append the call and return its results, or None where it has none.

    A result that the schema declares to be an overwritten argument is that argument's new version.
    """
    schema = operator._schema
    kinds = ctx.outputs[: len(schema.returns)]
    values = tuple(
        ctx.value(ctx.absent() if kind is None else fixed(kind), str(position))
        for position, kind in enumerate(kinds)
    )
    versions = memory.versions
    sources = [_returned(schema, position, given) for position in range(len(values))]
    ctx.append(
        Extern(
            results=(*values, *versions),
            target=str(operator),
            arguments=tuple(ctx.argument(given[a.name]) for a in schema.arguments if not a.kwarg_only),
            attributes=tuple((a.name, ctx.argument(given[a.name])) for a in schema.arguments if a.kwarg_only),
            mutates=memory.pairs,
            aliases=tuple((v.name, source.name) for v, source in zip(values, sources) if source is not None),
            layout_requirement=required_layout(operator),
            unpack=len(values) > 1,
            unreturned=tuple(v.name for v in versions),
            reason=NOT_ATEN,
            token=order_token(ctx, operator, bool(values or versions)),
            origin=ctx.origin,
        )
    )
    memory.close()
    if not values:
        return (None,)
    return tuple(
        memory.newest(source) if isinstance(source, Tensor) else Tensor(value)
        for value, source in zip(values, sources)
    )


def _returned(
    schema: torch.FunctionSchema, position: int, given: Mapping[str, Any]
) -> Tensor | StridedRef | None:
    """Argument, or part of a tensor, that the result at ``position`` is."""
    info = schema.returns[position].alias_info
    for argument in schema.arguments:
        own = argument.alias_info
        if info is not None and own is not None and own.before_set & info.before_set:
            found = given[argument.name]
            return found if isinstance(found, Tensor | StridedRef) else None
    return None


# --- parts of tensors -----------------------------------------------------------------------------------


Bases = Sequence[tuple[Tensor, Size]]
"""Overwritten tensors, each with the storage offset of its first element."""


def _parts(prefix: str, bases: Bases, kwargs: Mapping[str, Any]) -> Any:
    """Decode an argument from torch's encoding: a base, a part of one, None, or a list of them."""
    if f"{prefix}_length" in kwargs:
        count = kwargs[f"{prefix}_length"]
        return None if count is None else tuple(_part(f"{prefix}_{k}", bases, kwargs) for k in range(count))
    return _part(prefix, bases, kwargs)


def _part(prefix: str, bases: Bases, kwargs: Mapping[str, Any]) -> Any:
    number = kwargs[f"{prefix}_base_index"]
    if number is None:
        return None
    base, begin = bases[number]
    if f"{prefix}_storage_offset" in kwargs:
        offset = add(kwargs[f"{prefix}_storage_offset"], mul(-1, begin))
        return StridedRef(base.name, kwargs[f"{prefix}_size"], Layout(kwargs[f"{prefix}_stride"], offset))
    if f"{prefix}_slice_dim" in kwargs:
        dim, start, end = (kwargs[f"{prefix}_slice_{field}"] for field in ("dim", "start", "end"))
        shape, strides = list(base.shape), base.type.layout.strides
        shape[dim] = add(end, mul(-1, start))
        return StridedRef(base.name, tuple(shape), Layout(strides, mul(start, strides[dim])))
    return base


# --- copies ---------------------------------------------------------------------------------------------


def _may_overwrite(ctx: LoweringContext, node: Node, tensor: Tensor) -> bool:
    """True when the tensor's memory may be overwritten in place.

    It must belong to no other value, have eager's layout, and not be read later. A graph input belongs to the
    caller, unless the graph overwrites it anyway.
    """
    if node.op == "get_attr" or not ctx.builder.owns(tensor.name):
        return False
    producer = ctx.builder.producer(tensor.name)
    if not (producer is None or isinstance(producer, Call) or is_dense(tensor.shape, tensor.type.layout)):
        return False
    if node.op == "placeholder" and not any(
        _overwrites(user, node) for user in node.users if user > ctx.node
    ):
        return False
    return not _read_later(ctx.node, node)


def _read_later(call: Node, source: Node) -> bool:
    """True when an operation after ``call`` reads ``source`` or an alias of it."""
    visited, stack = {source}, [source]
    while stack:
        member = stack.pop()
        for user in member.users:
            if user is call:
                continue
            if user > call:
                if not _overwrites(user, member):
                    return True
            elif user not in visited and _shares(user):
                visited.add(user)
                stack.append(user)
    return False


def _overwrites(user: Node, target: Node) -> bool:
    """True when ``user`` overwrites all of ``target`` without reading it."""
    return (
        user.target is torch.ops.aten.copy_.default and user.args[0] is target and user.args[1] is not target
    )


def _shares(node: Node) -> bool:
    return not isinstance(node.target, torch._ops.OpOverload) or may_share_memory(node.target)


def _copy(ctx: LoweringContext, tensor: Tensor) -> Tensor:
    """Copy with eager's strides, including gaps."""
    kind = fixed(replace(tensor.type, layout=replace(tensor.type.layout, offset=0)))
    if is_dense(kind.shape, kind.layout):
        return ctx.pointwise(tensor.load, kind, f"{tensor.name}_copy")
    value = ctx.value(kind, f"{tensor.name}_copy")
    strides: tuple[Argument, ...] = kind.layout.strides
    ctx.append(
        Extern(
            results=(value,),
            target=_COPY_WITH_STRIDES,
            arguments=(Ref(tensor.name), strides),
            reason="the copy has eager's strides with gaps",
            origin=ctx.origin,
        )
    )
    return Tensor(value)
