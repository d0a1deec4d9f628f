"""Calls of scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt

from litz_codegen_cpp.host.routines.call_site import CallSite, Routine, bound_arguments, not_f32, tensor_types
from litz_codegen_cpp.host.routines.matmul_calls import broadcast_strides
from litz_ir.loops import Argument, Ref
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size

_TARGET = "aten._scaled_dot_product_flash_attention_for_cpu.default"
_NAMES = ("query", "key", "value", "dropout_p", "is_causal")
_DEFAULTS: Mapping[str, Argument] = {"dropout_p": 0.0, "is_causal": False, "attn_mask": None, "scale": None}


def _bound(step: CallStep) -> dict[str, Argument]:
    return {**_DEFAULTS, **bound_arguments(step, _NAMES, _DEFAULTS)}


def _refuses(plan: Plan, step: CallStep) -> str:
    found = _bound(step)
    if found["dropout_p"] != 0:
        return "the C runtime has no attention with dropout"
    scale = found["scale"]
    if (
        not isinstance(scale, int | float | None)
        or not isfinite(scale or 0)
        or not isinstance(found["is_causal"], bool)
    ):
        return "its scale or causality is not a finite literal"
    types = tensor_types(plan, step)
    query, key, value = (found[name] for name in _NAMES[:3])
    assert isinstance(query, Ref) and isinstance(key, Ref) and isinstance(value, Ref)
    shapes = [types[each.name].shape for each in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes) or len({(shape[:2], shape[3]) for shape in shapes}) > 1:
        return "the C runtime has attention of equal batches, heads and widths"
    if found["scale"] is None and not isinstance(shapes[0][3], int):
        return "its width is not a number"
    return not_f32(plan, step)


def _emit(site: CallSite, step: CallStep) -> tuple[list[str], str | None]:
    found = _bound(step)
    result, logsumexp = step.results[0], step.results[1]
    if result is None:
        return [], None
    names = [each.name for name in _NAMES[:3] if isinstance(each := found[name], Ref)]
    query, key, _ = (site.type(name) for name in names)
    batch, heads, queries, width = query.shape
    keys = key.shape[2]
    sizes = ", ".join(site.term(size) for size in (batch, heads, queries, keys, width))
    strides = [_strides(site, site.type(name).layout.strides) for name in names]
    mask, mask_data = found["attn_mask"], "nullptr"
    if isinstance(mask, Ref):
        mask_data = site.data(mask.name)
        strides.append(_strides(site, broadcast_strides(site.type(mask.name), (batch, heads, queries, keys))))
    else:
        strides.append("{}")
    scale = found["scale"]
    if scale is None:
        assert isinstance(width, int)
        scale = 1 / sqrt(width)
    also = "nullptr" if logsumexp is None else site.data(logsumexp)
    also_strides = "{}" if logsumexp is None else _strides(site, site.type(logsumexp).layout.strides)
    fields = [
        sizes,
        f"{', '.join(map(site.data, names))}, {mask_data}",
        *strides,
        f"{site.data(result)}, {also}, {_strides(site, site.type(result).layout.strides)}, {also_strides}",
        f"float({scale!r}), {'true' if found['is_causal'] else 'false'}",
    ]
    lines = [
        f"const litz_attention attention = {{{', '.join(fields)}}};",
        "litz_attend(rt, &attention, scratch);",
    ]
    return lines, f"litz_attention_scratch(rt, {sizes})"


def _strides(site: CallSite, strides: Sequence[Size]) -> str:
    return f"{{{', '.join(site.term(stride) for stride in strides)}}}"


ATTENTION = {_TARGET: Routine(_refuses, _emit, "attention")}
"""The routines by name."""
