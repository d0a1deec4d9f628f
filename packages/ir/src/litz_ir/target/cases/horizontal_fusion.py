"""Cases of horizontal fusion: subkernels of several sizes and kinds in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.dtypes import DType, bf16, f32, i32
from litz_ir.loops.nodes import Axis, NamedCombiner
from litz_ir.plan.kernel import Accumulate, Invocation, Kernel, Parameter, Phase, Store, Subkernel
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import cast, op
from litz_ir.scalar.expr import Const, Scalar
from litz_ir.symbols.polynomials import mul
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, symbol
from litz_ir.target.cases.case import Array, Case, at, axes, i, j, phase, unwritten, values

_ANY = SymbolInfo("n", low=0, high=1 << 20)
_DOUBLED = Phase((), (Store("o", i, op("mul", at("x", i, f32), Const(2.0, f32))),))


def horizontal_fusion_cases() -> tuple[Case, ...]:
    """The cases."""
    doubled = _kernel("doubled", {"x": f32}, {"o": f32}, (_ANY,), axes(i=symbol("n")), _DOUBLED)
    sizes = (1, 1000, 4096, 17, 0)
    lists = _fused("lists", [(doubled, [(f"x{k}", f"o{k}") for k in range(5)], [(n,) for n in sizes])])
    inputs = {f"x{k}": values(f"x{k}", f32, max(1, n)) for k, n in enumerate(sizes)}
    outputs = {f"o{k}": (f32, max(1, n)) for k, n in enumerate(sizes)}
    s = symbol("s")
    symbolic = _fused(
        "lists_of_sizes_that_are_not_fixed",
        [(doubled, [("x0", "o0"), ("x1", "o1"), ("x2", "o2")], [(s,), (mul(s, 3),), (100,)])],
        (SymbolInfo("s", low=0, high=1 << 16),),
    )
    return (
        _case(lists, inputs, outputs),
        _case(symbolic, {f"x{k}": values(f"y{k}", f32, 3000) for k in range(3)},
              {f"o{k}": (f32, 3000) for k in range(3)}, {"s": 777}),
        _mixed(doubled),
    )  # fmt: skip


def _mixed(doubled: Kernel) -> Case:
    """A pointwise kernel, a conversion and row sums; the first and the last read one buffer."""
    rows, columns = 12, 300
    total = Accumulate((("t", f32),), NamedCombiner("sum"), (at("x", i * columns + j, f32),))
    sums = _kernel(
        "sums", {"x": f32}, {"o": f32}, (), axes(i=rows), phase(total, over=axes(j=columns)),
        phase(Store("o", i, Scalar("t", f32))),
    )  # fmt: skip
    narrow = Phase((), (Store("o", i, cast(at("x", i, i32), bf16)),))
    narrowed = _kernel("narrowed", {"x": i32}, {"o": bf16}, (), axes(i=513), narrow)
    fused = _fused(
        "loops_of_different_kinds",
        [
            (doubled, [("a", "b")], [(rows * columns,)]),
            (sums, [("a", "c")], [()]),
            (narrowed, [("d", "e")], [()]),
        ],
    )
    # Terms of one sign: with cancellation, another order of summation would differ by many units.
    inputs = {"a": values("terms", f32, rows * columns, 0), "d": values("narrowed", i32, 513, -99, 99)}
    outputs = {"b": (f32, rows * columns), "c": (f32, rows), "e": (bf16, 513)}
    return _case(fused, inputs, outputs, ulp=8)


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


def _fused(
    name: str,
    kernels: Sequence[tuple[Kernel, Sequence[tuple[str, ...]], Sequence[tuple[Size, ...]]]],
    symbols: tuple[SymbolInfo, ...] = (),
) -> Kernel:
    """A horizontally fused kernel: for each subkernel the buffers and symbol values of each invocation."""
    parameters: dict[str, Parameter] = {}
    subkernels = []
    for kernel, buffer_lists, sizes in kernels:
        for buffers in buffer_lists:
            for parameter, buffer in zip(kernel.parameters, buffers, strict=True):
                parameters[buffer] = Parameter(buffer, parameter.dtype, parameter.access)
        invocations = (Invocation(buffers, own) for buffers, own in zip(buffer_lists, sizes, strict=True))
        subkernels.append(Subkernel(kernel, tuple(invocations)))
    return Kernel(
        f"conform_{name}", tuple(parameters.values()), symbols, (), (), (), CpuLoops(), tuple(subkernels)
    )


def _case(
    fused: Kernel,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, tuple[DType, int]],
    symbols: Mapping[str, int] | None = None,
    ulp: int = 0,
) -> Case:
    buffers = dict(inputs) | {name: unwritten(dtype, count) for name, (dtype, count) in outputs.items()}
    return Case(fused.name.removeprefix("conform_"), fused, buffers, symbols or {}, ulp)
