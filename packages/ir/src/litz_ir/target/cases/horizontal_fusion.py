"""Packs: loops of several sizes, of one kind and of different ones, that one launch runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.dtypes import DType, bf16, f32, i32
from litz_ir.loops.nodes import Axis, NamedCombiner
from litz_ir.plan.kernel import Accumulate, Invocation, Kernel, Parameter, Phase, Store, Subkernel
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import cast, op
from litz_ir.scalar.expr import Const, Scalar
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, mul, symbol
from litz_ir.target.cases.case import Array, Case, at, axes, i, j, phase, unwritten, values

_ANY = SymbolInfo("n", low=0, high=1 << 20)
_DOUBLED = Phase((), (Store("o", i, op("mul", at("x", i, f32), Const(2.0, f32))),))


def horizontal_fusion_cases() -> tuple[Case, ...]:
    """The cases of this file."""
    doubled = _kernel("doubled", {"x": f32}, {"o": f32}, (_ANY,), axes(i=symbol("n")), _DOUBLED)
    sizes = (1, 1000, 4096, 17, 0)
    lists = _pack("lists", [(doubled, [(f"x{k}", f"o{k}") for k in range(5)], [(n,) for n in sizes])])
    given = {f"x{k}": values(f"x{k}", f32, max(1, n)) for k, n in enumerate(sizes)}
    made = {f"o{k}": (f32, max(1, n)) for k, n in enumerate(sizes)}
    s = symbol("s")
    open_ = _pack(
        "lists_of_sizes_that_are_not_fixed",
        [(doubled, [("x0", "o0"), ("x1", "o1"), ("x2", "o2")], [(s,), (mul(s, 3),), (100,)])],
        (SymbolInfo("s", low=0, high=1 << 16),),
    )
    return (
        _case(lists, given, made),
        _case(open_, {f"x{k}": values(f"y{k}", f32, 3000) for k in range(3)},
              {f"o{k}": (f32, 3000) for k in range(3)}, {"s": 777}),
        _mixed(doubled),
    )  # fmt: skip


def _mixed(doubled: Kernel) -> Case:
    """A map, a conversion, and sums over rows that all read one buffer."""
    rows, columns = 12, 300
    total = Accumulate((("t", f32),), NamedCombiner("sum"), (at("x", i * columns + j, f32),))
    sums = _kernel(
        "sums", {"x": f32}, {"o": f32}, (), axes(i=rows), phase(total, over=axes(j=columns)),
        phase(Store("o", i, Scalar("t", f32))),
    )  # fmt: skip
    narrow = Phase((), (Store("o", i, cast(at("x", i, i32), bf16)),))
    narrowed = _kernel("narrowed", {"x": i32}, {"o": bf16}, (), axes(i=513), narrow)
    pack = _pack(
        "loops_of_different_kinds",
        [
            (doubled, [("a", "b")], [(rows * columns,)]),
            (sums, [("a", "c")], [()]),
            (narrowed, [("d", "e")], [()]),
        ],
    )
    # Terms of one sign: where they cancel, sums in another order stray by many units.
    given = {"a": values("packed", f32, rows * columns, 0), "d": values("narrowed", i32, 513, -99, 99)}
    made = {"b": (f32, rows * columns), "c": (f32, rows), "e": (bf16, 513)}
    return _case(pack, given, made, ulp=8)


def _kernel(
    name: str,
    inputs: Mapping[str, DType],
    outputs: Mapping[str, DType],
    symbols: tuple[SymbolInfo, ...],
    outer: tuple[Axis, ...],
    *phases: Phase,
) -> Kernel:
    parameters = [Parameter(each, dtype, "in") for each, dtype in inputs.items()]
    parameters += [Parameter(each, dtype, "out") for each, dtype in outputs.items()]
    return Kernel(name, tuple(parameters), symbols, outer, (), phases, CpuLoops())


def _pack(
    name: str,
    loops: Sequence[tuple[Kernel, Sequence[tuple[str, ...]], Sequence[tuple[Size, ...]]]],
    symbols: tuple[SymbolInfo, ...] = (),
) -> Kernel:
    """A pack of loops: for each kernel the buffers and the symbol values of each."""
    parameters: dict[str, Parameter] = {}
    parts = []
    for kernel, places, sizes in loops:
        for buffers in places:
            for parameter, buffer in zip(kernel.parameters, buffers, strict=True):
                parameters[buffer] = Parameter(buffer, parameter.dtype, parameter.access)
        bindings = (Invocation(buffers, own) for buffers, own in zip(places, sizes, strict=True))
        parts.append(Subkernel(kernel, tuple(bindings)))
    return Kernel(
        f"conform_{name}", tuple(parameters.values()), symbols, (), (), (), CpuLoops(), tuple(parts)
    )


def _case(
    pack: Kernel,
    given: Mapping[str, Array],
    made: Mapping[str, tuple[DType, int]],
    symbols: Mapping[str, int] | None = None,
    ulp: int = 0,
) -> Case:
    buffers = dict(given) | {name: unwritten(dtype, count) for name, (dtype, count) in made.items()}
    return Case(pack.name.removeprefix("conform_"), pack, buffers, symbols or {}, ulp)
