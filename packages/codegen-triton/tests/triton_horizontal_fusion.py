"""Packs, as data: kernels of the corpus side by side, and lists of loops that are alike but for their sizes.

Run as a program (``TRITON_INTERPRET=1 python triton_horizontal_fusion.py``) it runs every pack, and those of the
conformance suite, in Triton's interpreter beside the reference interpreter, like ``triton_corpus.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import triton_corpus
from triton_corpus import Case
from triton_scheduled import choices, requested

from litz_ir.dtypes import DType, bf16, f32, f64
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import (
    Accumulate,
    Invocation,
    Kernel,
    Parameter,
    Phase,
    Statement,
    Store,
    Subkernel,
    TileRequest,
)
from litz_ir.scalar import Scalar
from litz_ir.scalar.build import cast, const, load, op
from litz_ir.symbols import Size, SymbolInfo, symbol
from litz_ir.target.conformance import conformance_cases

PACKS, PER_PACK = 30, 5
i, r, n = symbol("i0"), symbol("r0"), symbol("n0")


def cases() -> list[Case]:
    """All packs."""
    rng = np.random.default_rng(18)
    corpus = [
        *triton_corpus.maps(),
        *triton_corpus.indirect(),
        *triton_corpus.reductions(),
        *triton_corpus.scans(),
    ]
    single = [*corpus, *triton_corpus.conversions()]
    drawn = [
        pack(f"pack_{k}", [single[j] for j in rng.permutation(len(single))[:PER_PACK]]) for k in range(PACKS)
    ]
    return [*drawn, *lists(), *suite(), *tuned()]


def pack(name: str, chosen: Sequence[Case]) -> Case:
    """These cases side by side, each on buffers and symbols of its own."""
    parameters, symbols, parts = [], [], []
    sizes, fill, values = {}, {}, {}
    for k, case in enumerate(chosen):
        own = case.kernel
        parameters += [replace(each, name=f"c{k}_{each.name}") for each in own.parameters]
        symbols += [replace(info, name=f"c{k}_{info.name}") for info in own.symbols]
        binding = Invocation(
            tuple(f"c{k}_{each.name}" for each in own.parameters),
            tuple(symbol(f"c{k}_{info.name}") for info in own.symbols),
        )
        parts.append(Subkernel(replace(own, name=f"part{k}"), (binding,)))
        sizes |= {f"c{k}_{each}": size for each, size in case.sizes.items()}
        fill |= {f"c{k}_{each}": make for each, make in case.fill.items()}
        values |= {f"c{k}_{each}": value for each, value in case.symbols.items()}
    kernel = Kernel(name, tuple(parameters), tuple(symbols), (), (), (), TileRequest(), tuple(parts))
    rtol, atol = max(case.rtol for case in chosen), max(case.atol for case in chosen)
    return Case(kernel, sizes, fill, values, rtol, atol)


def adam(dtype: DType = f32) -> Kernel:
    """A step of an optimiser over one parameter, whose size and rate are given."""
    p, g, m, v = (cast(load(name, (i,), dtype), f32) for name in "pgmv")
    mean = op("add", op("mul", m, const(0.9, f32)), op("mul", g, const(0.1, f32)))
    square = op("add", op("mul", v, const(0.99, f32)), op("mul", op("mul", g, g), const(0.01, f32)))
    rate = cast(Scalar("rate", f64), f32)
    step = op("div", op("mul", rate, mean), op("add", op("sqrt", op("abs", square)), const(1e-3, f32)))
    made = {"p": op("sub", p, step), "m": mean, "v": square}
    stores = tuple(Store(name, i, cast(value, dtype)) for name, value in made.items())
    access = [Parameter(name, dtype, "in" if name == "g" else "inout") for name in "pgmv"]
    infos = (SymbolInfo("rate", "float"), SymbolInfo("n0", low=0, high=1 << 26, hint=1 << 16))
    return Kernel("part0", tuple(access), infos, (Axis("i0", n),), (), (Phase((), stores),), TileRequest())


def squares(dtype: DType = f32) -> Kernel:
    """The sum of squares of each of some rows of 96 elements."""
    value = cast(load("x", (i * 96 + r,), dtype), f32)
    total: Statement = Accumulate((("a0", f32),), NamedCombiner("sum"), (op("mul", value, value),))
    phases = (Phase((Axis("r0", 96),), (total,)), Phase((), (Store("o", i, Scalar("a0", f32)),)))
    parameters = (Parameter("x", dtype, "in"), Parameter("o", f32, "out"))
    infos = (SymbolInfo("n0", low=0, high=1 << 20, hint=64),)
    return Kernel("part1", parameters, infos, (Axis("i0", n),), (), phases, TileRequest())


def listed(
    name: str,
    kernels: Sequence[tuple[Kernel, Sequence[tuple[Size, int]]]],
    symbols: Sequence[SymbolInfo] = (),
) -> Kernel:
    """A pack of lists: for each kernel the sizes of its loops; a rate is the pack's own."""
    parameters, parts = [], []
    for k, (kernel, loops) in enumerate(kernels):
        bindings = []
        for j, (size, _) in enumerate(loops):
            names = tuple(f"k{k}_{j}_{each.name}" for each in kernel.parameters)
            parameters += [
                replace(each, name=own) for each, own in zip(kernel.parameters, names, strict=True)
            ]
            given = (symbol("rate") if info.kind == "float" else size for info in kernel.symbols)
            bindings.append(Invocation(names, tuple(given)))
        parts.append(Subkernel(kernel, tuple(bindings)))
    return Kernel(name, tuple(parameters), tuple(symbols), (), (), (), TileRequest(), tuple(parts))


def lists() -> list[Case]:
    """Optimisers' steps and sums of squares over lists."""
    rate = SymbolInfo("rate", "float")
    fixed: list[Size] = [7, 1024, 1, 5000, 768, 0, 2304, 64]
    made = []
    for dtype in (f32, bf16):
        kernels = [(adam(dtype), [(size, int(size)) for size in fixed]), (squares(dtype), [(3, 3), (50, 50)])]
        made.append((listed(f"steps_{dtype}", kernels, (rate,)), kernels, {"rate": 0.01}))
    s = symbol("s0")
    open_: list[tuple[Size, int]] = [(s, 300), (100, 100), (s * 4 + 1, 1201), ((s + 7) // 8, 38)]
    kernels = [(adam(), open_), (squares(), [(s, 300)])]
    for low, name in ((0, "steps_of_any_size"), (None, "steps_in_64_bits")):
        info = SymbolInfo("s0", low=0, high=None if low is None else 1 << 16)
        general = [
            (
                replace(
                    each, symbols=tuple(replace(k, high=None) if k.name == "n0" else k for k in each.symbols)
                ),
                own,
            )
            for each, own in kernels
        ]
        made.append(
            (listed(name, kernels if low == 0 else general, (rate, info)), kernels, {"rate": 0.1, "s0": 300})
        )
    found = []
    for pack_, parts, values in made:
        sizes = {}
        for k, (kernel, loops) in enumerate(parts):
            for j, (_, count) in enumerate(loops):
                each = {"x": 96 * count, "o": count}
                sizes |= {f"k{k}_{j}_{p.name}": max(1, each.get(p.name, count)) for p in kernel.parameters}
        found.append(Case(pack_, sizes, {}, values, 1e-2 if "bf16" in pack_.name else 2e-5, 1e-5))
    return found


def suite() -> list[Case]:
    """The packs of the conformance suite."""
    found = []
    for case in conformance_cases():
        if case.kernel.subkernels:
            sizes = {name: len(content) for name, content in case.buffers.items()}
            found.append(Case(requested(case.kernel), sizes, {}, dict(case.symbols)))
    return found


def tuned() -> list[Case]:
    """Packs with every other choice of tiles."""
    found = []
    for case in (*lists(), *suite()):
        if case.kernel.name in ("steps_f32", "steps_of_any_size", "conform_loops_of_different_kinds"):
            for k, kernel in enumerate(choices(case.kernel)[1:]):
                found.append(replace(case, kernel=replace(kernel, name=f"{kernel.name}_{k}")))
    return found


def wide(kernel: Kernel) -> Kernel:
    """The kernel for sizes that are multiples of 16, and large."""
    known = (
        replace(info, divisor=16, hint=1 << 20) if info.name == "n0" else info for info in kernel.symbols
    )
    return replace(kernel, symbols=tuple(known))


RATE = (SymbolInfo("rate", "float"),)
PARAMETERS: list[tuple[Size, int]] = [
    (1 << 20, 0),
    (768 * 4, 0),
    (2304, 0),
    (50257 * 16, 0),
    (symbol("s0") * 16, 0),
]
CUBINS = [
    listed("lists", [(wide(adam()), PARAMETERS)], (*RATE, SymbolInfo("s0", low=0, high=1 << 20))),
    listed("others", [(squares(), [(16, 0), (64, 0)]), (wide(adam(bf16)), [(4096, 0), (1 << 16, 0)])], RATE),
]
"""Packs whose accesses are of 16 bytes."""


if __name__ == "__main__":
    triton_corpus.main(cases(), sys.argv[1:])
