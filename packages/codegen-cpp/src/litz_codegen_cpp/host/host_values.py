"""Numbers that the host computes from values, as kernels of one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from litz_ir.dtypes import DType, b1, f64, i64
from litz_ir.loops import TensorType
from litz_ir.plan import CpuLoops, Kernel, Parameter, Phase, Store
from litz_ir.scalar import Expr, Load, Scalar, build, loads, transform, walk
from litz_ir.symbols import Size, SymbolInfo, add, mul


@dataclass(frozen=True, slots=True)
class HostValue:
    """A kernel that writes one number, and what it is launched on."""

    kernel: Kernel
    """The kernel; its last parameter is the number."""
    buffers: tuple[str, ...]
    """The buffers that it reads."""
    symbols: tuple[str, ...]
    """The symbols that it reads."""


def host_value(
    name: str, body: Expr, kind: str, types: Callable[[str], TensorType], symbols: Mapping[str, SymbolInfo]
) -> HostValue:
    """Return the kernel of a 0-d body whose value is an ``int``, ``float`` or ``bool``."""
    dtype: DType = {"int": i64, "float": f64, "bool": b1}[kind]
    read = tuple(dict.fromkeys(load.buffer for load in loads(body)))
    names = {buffer: f"p{k}" for k, buffer in enumerate(read)}

    def by_offset(node: Expr) -> Expr:
        if not isinstance(node, Load):
            return node
        layout = types(node.buffer).layout
        offset: Size = layout.offset
        for index, stride in zip(node.index, layout.strides, strict=True):
            offset = add(offset, mul(index, stride))
        return Load(names[node.buffer], (offset,), node.dtype)

    value = transform(body, by_offset)
    value = value if value.dtype == dtype else build.cast(value, dtype)
    needed = {node.name for node in walk(value) if isinstance(node, Scalar)} | value.free_symbols
    infos = tuple(info for each, info in symbols.items() if each in needed)
    kernel = Kernel(
        name,
        (*(Parameter(names[each], types(each).dtype, "in") for each in read), Parameter("value", dtype, "out")),
        infos,
        (),
        (),
        (Phase((), (Store("value", 0, value),)),),
        CpuLoops(),
    )  # fmt: skip
    return HostValue(kernel, read, tuple(info.name for info in infos))
