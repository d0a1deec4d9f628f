"""Fallbacks to ATen, whose aliasing, mutation and layout requirements come from schemas and tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from litz_ir.device import Device
from litz_ir.errors import NotCompiled
from litz_ir.loops import Extern, Keyword, LayoutRequirement, Ref, Value
from litz_ir.origin import UNKNOWN, Origin
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.values import Complex, Lowered, Tensor, fixed, has_complex

_COPY = "aten._to_copy.default"
NOT_ATEN = "the operator is not part of ATen"
"""Reason of a call of a custom operator, for which litz has no rules."""


_QUANTISED = ("aten.quantize_per_tensor.default", "aten.quantize_per_tensor.tensor_qparams")
"""Operators whose result is a tensor of a quantised dtype, which their meta kernels describe as one of floats."""

EFFECT = "litz_effect"
"""Key in ``meta`` of FX nodes whose operator has an effect that its schema does not declare."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operation that runs as its ATen kernel."""

    node: str
    """Name of the FX node."""
    target: str
    """Overload of the operator."""
    reason: str
    """Reason for the fallback."""
    origin: Origin = field(default=UNKNOWN, compare=False)
    """Source of the operation in the user's program."""

    def describe(self) -> str:
        """Format the fallback as one line."""
        return f"{self.target}: {self.reason} ({self.origin.describe()})"


def call_aten(
    ctx: LoweringContext,
    overload: torch._ops.OpOverload,
    args: Sequence[Lowered],
    kwargs: Mapping[str, Lowered],
    reason: str,
) -> tuple[Tensor | Complex, ...]:
    """Append an ``Extern`` call of ``overload`` and return its tensor results in ATen's order.

    The operation's results are those of ATen, followed by the new versions of mutated arguments. A returned
    argument has both; later operations read the new version. Raises :class:`NotCompiled` for quantised tensors, since
    no metadata tells which later operations read them.
    """
    if str(overload) in _QUANTISED:
        raise NotCompiled(f"{overload} returns a tensor of a quantised dtype")
    schema = overload._schema
    bound = _bind(schema, args, kwargs)
    old = {t.name: t for a in schema.arguments if _is_written(a) for t in _tensors(bound.get(a.name))}
    new = {name: Value(ctx.builder.unique(name), t.type, replaces=name) for name, t in old.items()}
    values: list[Value] = []
    results: list[Tensor | Complex] = []
    aliases: list[tuple[str, str]] = []
    for position, kind in enumerate(ctx.outputs):
        is_complex = ctx.complex_outputs[position]
        source = _aliased(schema, bound, position)
        promised = ctx.absent() if kind is None else fixed(kind)
        made = ctx.value(promised, ctx.position(position), is_complex=is_complex)
        values.append(made)
        tensor = Tensor(made)
        if source is not None:
            aliases.append((made.name, source.name))
            tensor = Tensor(new.get(source.name, made))
        results.append(Complex(tensor) if is_complex else tensor)
    ctx.append(
        Extern(
            results=(*values, *new.values()),
            target=str(overload),
            arguments=tuple(map(ctx.argument, args)),
            attributes=tuple((k, ctx.argument(v)) for k, v in kwargs.items()),
            mutates=tuple((name, v.name) for name, v in new.items()),
            aliases=tuple(aliases),
            layout_requirement="exact"
            if has_complex((*args, *kwargs.values()))
            else required_layout(overload),
            unpack=ctx.unpack,
            unreturned=tuple(version.name for version in new.values()),
            reason=reason,
            token=order_token(ctx, overload, bool(values or new)),
            origin=ctx.origin,
        )
    )
    for name, version in new.items():
        ctx.builder.redirect(name, Tensor(version))
    return tuple(results)


def copied_to(ctx: LoweringContext, tensor: Tensor, device: Device, reason: str) -> Tensor:
    """Append an ``Extern`` that copies a tensor to another device."""
    kind = replace(fixed(tensor.type), device=device)
    value = ctx.value(kind, tensor.name)
    ctx.append(
        Extern(
            results=(value,),
            target=_COPY,
            arguments=(Ref(tensor.name),),
            attributes=(("device", device),),
            layout_requirement="exact",
            reason=reason,
            origin=ctx.origin,
        )
    )
    return Tensor(value)


def resolved(ctx: LoweringContext, tensor: Tensor) -> Tensor:
    """Append an ``Extern`` that copies a tensor and resolves its negative bit."""
    value = ctx.value(fixed(ctx.temporary(tensor.dtype, tensor.shape, tensor.device)), "resolved")
    ctx.append(
        Extern(
            results=(value,),
            target="aten.clone.default",
            arguments=(Ref(tensor.name),),
            attributes=(("memory_format", Keyword("memory_format", "contiguous_format")),),
            layout_requirement="exact",
            reason="the input has its negative bit set",
            origin=ctx.origin,
        )
    )
    return Tensor(value)


def _bind(
    schema: torch.FunctionSchema, args: Sequence[Lowered], kwargs: Mapping[str, Lowered]
) -> dict[str, Lowered]:
    names = [a.name for a in schema.arguments if not a.kwarg_only]
    return {**dict(zip(names, args)), **kwargs}


def _is_written(argument: torch._C.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(value: Lowered) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Complex):
        yield value.pairs
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)


def _aliased(schema: torch.FunctionSchema, bound: Mapping[str, Lowered], position: int) -> Tensor | None:
    """Argument whose memory the result at ``position`` shares, by the alias sets of the schema."""
    if len(schema.returns) == 1:
        position = 0
    if position >= len(schema.returns):
        return None
    info = schema.returns[position].alias_info
    if info is None:
        return None
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.before_set & info.before_set:
            return next(_tensors(bound.get(argument.name)), None)
    return None


def required_layout(overload: torch._ops.OpOverload) -> LayoutRequirement:
    """Layout requirement of an operator by its tags: ``any`` for ``flexible_layout``, else eager's strides.

    Strides of results derive from those of arguments, and a custom operator may read them.
    """
    return "any" if torch.Tag.flexible_layout in overload.tags else "exact"


def order_token(ctx: LoweringContext, overload: torch._ops.OpOverload, has_results: bool) -> str:
    """Ordering token of a call.

    Random operators keep the order of ATen's generator, collectives that of all ranks, and operators without
    results are called for their effect.
    """
    if torch.Tag.nondeterministic_seeded in overload.tags:
        return "rng"
    if overload.namespace == "_c10d_functional":
        return "collective"
    return "effect" if EFFECT in ctx.node.meta or not has_results else ""
