"""Calls of convolutions, in one or two dimensions, and of the prepacking of their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from litz_codegen_cpp.host.routines.call_site import CallSite, Routine, bound_arguments, not_f32, tensor_types
from litz_ir.loops import Argument, Ref, TensorType
from litz_ir.plan import CallStep, Plan
from litz_ir.symbols import Size

_ATEN = ("in", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
_PREPACKED = ("in", "weight", "bias", "padding", "stride", "dilation", "groups", "activation")
_PREPACK = ("weight", "scale", "padding", "stride", "dilation", "groups", "shape")
_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"aten.convolution.default": _ATEN, "convolution": _PREPACKED, "prepack_convolution": _PREPACK}
)
"""Names of the arguments of each routine, by position."""
_ACTIVATIONS = ("none", "hardswish", "silu", "sigmoid")
"""Activations in the order of their numbers in library.h."""
_OPTIONAL = {"bias": None, "scale": None}


def _bound(step: CallStep) -> dict[str, Argument]:
    return bound_arguments(step, _NAMES[step.target], _OPTIONAL)


def _refuses(plan: Plan, step: CallStep) -> str:
    found = _bound(step)
    types = tensor_types(plan, step)
    weight = found["weight"]
    if not isinstance(weight, Ref):
        return "its weight is no tensor"
    if len(types[weight.name].shape) not in (3, 4):
        return f"the C runtime convolves in one or two dimensions, not in {len(types[weight.name].shape) - 2}"
    if found.get("transposed", False) is not False:
        return "the C runtime has no transposed convolutions"
    if found.get("activation", "none") not in _ACTIVATIONS:
        return f"the C runtime has no activation {found['activation']!r}"
    numbers = (*_pair(found["stride"]), *_pair(found["padding"]), *_pair(found["dilation"]), found["groups"])
    if not all(isinstance(number, int) for number in numbers):
        return "its stride, padding, dilation and groups are not all numbers"
    if not all(isinstance(size, int) for size in types[weight.name].shape):
        return "the sizes of its weight are not numbers"
    bias = found.get("bias")
    if isinstance(bias, Ref) and types[bias.name].layout.strides != (1,) and types[bias.name].shape != (1,):
        return "the elements of its bias are not adjacent"
    return not_f32(plan, step)


def _pair(value: Argument) -> tuple[Argument, ...]:
    """Return the items of a list of an argument; one number stands for all dimensions."""
    return value if isinstance(value, tuple) else (value,)


def _two(value: Argument, one: int, count: int) -> str:
    """Return numbers for rows and columns; a convolution in one dimension has one row, whose number is ``one``."""
    items = _pair(value) * (count if len(_pair(value)) == 1 else 1)
    return ", ".join(str(item) for item in (one, *items)[-2:])


def _four(site: CallSite, sizes: Sequence[Size], one: Size) -> str:
    """Return sizes or strides of batch, channels, rows and columns, with ``one`` for a row that there is not."""
    rows = (one,) if len(sizes) == 3 else ()
    return ", ".join(site.term(size) for size in (*sizes[:2], *rows, *sizes[2:]))


def _prepacked_bytes(shape: Sequence[Size], groups: Argument) -> str:
    taps = 1
    for size in shape[2:]:
        assert isinstance(size, int)
        taps *= size
    return f"litz_prepacked_convolution_bytes({shape[0]}, {shape[1]}, {taps}, {groups})"


def _prepack_line(
    site: CallSite, weight: TensorType, data: str, groups: Argument, scale: str, to: str
) -> str:
    sizes = _four(site, weight.shape, 1)
    strides = _four(site, weight.layout.strides, 0)
    return f"litz_prepack_convolution({sizes}, {groups}, {data}, numbers<4>{{{{{strides}}}}}, {scale}, {to});"


def _emit(site: CallSite, step: CallStep) -> tuple[list[str], str | None]:
    found, result = _bound(step), step.results[0]
    inside, filters, bias = found["in"], found["weight"], found["bias"]
    assert isinstance(inside, Ref) and isinstance(filters, Ref)
    if result is None:
        return [], None
    in_type, weight, out = site.type(inside.name), site.type(filters.name), site.type(result)
    groups, dimensions = found["groups"], len(weight.shape) - 2
    data, prepacked = site.data(filters.name), step.target == "convolution"
    if not prepacked:
        form = f"convolution {groups}"
        line = site.prepacked(
            filters.name,
            form,
            _prepacked_bytes(weight.shape, groups),
            lambda to: _prepack_line(site, weight, data, groups, "nullptr, 0", to),
        )
        prepacked, data = line is not None, line or data
    sizes = f"{_four(site, in_type.shape, 1)}, {_out_sizes(site, out)}"
    taps = _two(tuple(weight.shape[2:]), 1, dimensions)
    without_row = (("stride", 1), ("padding", 0), ("dilation", 1))
    numbers = [_two(found[name], one, dimensions) for name, one in without_row]
    activation = _ACTIVATIONS.index(str(found.get("activation", "none")))
    fields = [
        sizes,
        f"{{{taps}}}, {', '.join(f'{{{each}}}' for each in numbers)}, {groups}",
        f"{site.data(inside.name)}, {{{_four(site, in_type.layout.strides, 0)}}}",
        f"{data}, {{{_four(site, weight.layout.strides, 0)}}}, {'true' if prepacked else 'false'}",
        site.data(bias.name) if isinstance(bias, Ref) else "nullptr",
        f"{site.data(result)}, {{{_out_strides(site, out)}}}, {activation}",
    ]
    bare = [
        *fields[:2],
        f"nullptr, {{{_four(site, in_type.layout.strides, 0)}}}",
        f"nullptr, {{}}, {'true' if prepacked else 'false'}",
        "nullptr",
        f"nullptr, {{{_out_strides(site, out)}}}",
    ]
    lines = [
        f"const litz_convolution convolution = {{{', '.join(fields)}}};",
        "litz_convolve(rt, &convolution, scratch);",
    ]
    return lines, f"litz_convolution_scratch(rt, litz_convolution{{{', '.join(bare)}}})"


def _out_sizes(site: CallSite, out: TensorType) -> str:
    rows = (1,) if len(out.shape) == 3 else ()
    return ", ".join(site.term(size) for size in (out.shape[1], *rows, *out.shape[2:]))


def _out_strides(site: CallSite, out: TensorType) -> str:
    """Return the strides of a result; the only row of one dimension lies where the next image would."""
    rows = (out.layout.strides[0],) if len(out.shape) == 3 else ()
    return ", ".join(
        site.term(stride) for stride in (*out.layout.strides[:2], *rows, *out.layout.strides[2:])
    )


def _emit_prepack(site: CallSite, step: CallStep) -> tuple[list[str], str | None]:
    found, result = _bound(step), step.results[0]
    filters, scale = found["weight"], found["scale"]
    assert isinstance(filters, Ref)
    if result is None:
        return [], None
    factor = "nullptr, 0"
    if isinstance(scale, Ref):
        factor = f"{site.data(scale.name)}, {site.term(site.type(scale.name).layout.strides[0])}"
    line = _prepack_line(
        site, site.type(filters.name), site.data(filters.name), found["groups"], factor, site.data(result)
    )
    return [line], None


def _result_bytes(plan: Plan, step: CallStep) -> str:
    found = _bound(step)
    weight = found["weight"]
    assert isinstance(weight, Ref)
    return _prepacked_bytes(tensor_types(plan, step)[weight.name].shape, found["groups"])


CONVOLUTIONS = {
    "aten.convolution.default": Routine(_refuses, _emit, "convolution"),
    "convolution": Routine(_refuses, _emit, "convolution"),
    "prepack_convolution": Routine(_refuses, _emit_prepack, "convolution", _result_bytes),
}
"""The routines by name."""
