"""Hand-built foreach kernels: kernels of the corpus in one launch, and lists of loops that differ in their sizes.

Run as a program (``TRITON_INTERPRET=1 python triton_horizontal_fusion.py``) it runs every foreach kernel, and those of
the conformance suite, in Triton's interpreter and in the reference interpreter, like ``triton_corpus.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import triton_cases
import triton_maps
import triton_operations
import triton_reductions
import triton_scans
from triton_cases import Case
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

KERNELS, SUBKERNELS = 30, 5
"""Foreach kernels of random cases, and the subkernels of each."""

i, r, n = symbol("i0"), symbol("r0"), symbol("n0")


def cases() -> list[Case]:
    """Return every case."""
    rng = np.random.default_rng(18)
    corpus = [
        *triton_maps.maps(),
        *triton_maps.indirect(),
        *triton_reductions.reductions(),
        *triton_scans.scans(),
    ]
    single = [*corpus, *triton_operations.conversions()]
    drawn = [
        foreach(f"foreach_{k}", [single[j] for j in rng.permutation(len(single))[:SUBKERNELS]])
        for k in range(KERNELS)
    ]
    return [*drawn, *lists(), *suite(), *tuned()]


def foreach(name: str, chosen: Sequence[Case]) -> Case:
    """Return a foreach kernel of these cases, each with buffers and symbols of its own."""
    parameters, symbols, subkernels = [], [], []
    sizes, fill, values = {}, {}, {}
    for k, case in enumerate(chosen):
        own = case.kernel
        parameters += [replace(each, name=f"c{k}_{each.name}") for each in own.parameters]
        symbols += [replace(info, name=f"c{k}_{info.name}") for info in own.symbols]
        invocation = Invocation(
            tuple(f"c{k}_{each.name}" for each in own.parameters),
            tuple(symbol(f"c{k}_{info.name}") for info in own.symbols),
        )
        subkernels.append(Subkernel(replace(own, name=f"subkernel{k}"), (invocation,)))
        sizes |= {f"c{k}_{each}": size for each, size in case.sizes.items()}
        fill |= {f"c{k}_{each}": make for each, make in case.fill.items()}
        values |= {f"c{k}_{each}": value for each, value in case.symbols.items()}
    kernel = Kernel(name, tuple(parameters), tuple(symbols), (), (), (), TileRequest(), tuple(subkernels))
    rtol, atol = max(case.rtol for case in chosen), max(case.atol for case in chosen)
    return Case(kernel, sizes, fill, values, rtol, atol)


def adam(dtype: DType = f32) -> Kernel:
    """Return the kernel of an Adam step over one parameter; its size and the learning rate are symbols."""
    p, g, m, v = (cast(load(name, (i,), dtype), f32) for name in "pgmv")
    mean = op("add", op("mul", m, const(0.9, f32)), op("mul", g, const(0.1, f32)))
    square = op("add", op("mul", v, const(0.99, f32)), op("mul", op("mul", g, g), const(0.01, f32)))
    rate = cast(Scalar("rate", f64), f32)
    step = op("div", op("mul", rate, mean), op("add", op("sqrt", op("abs", square)), const(1e-3, f32)))
    made = {"p": op("sub", p, step), "m": mean, "v": square}
    stores = tuple(Store(name, i, cast(value, dtype)) for name, value in made.items())
    access = [Parameter(name, dtype, "in" if name == "g" else "inout") for name in "pgmv"]
    infos = (SymbolInfo("rate", "float"), SymbolInfo("n0", low=0, high=1 << 26, hint=1 << 16))
    return Kernel(
        "subkernel0", tuple(access), infos, (Axis("i0", n),), (), (Phase((), stores),), TileRequest()
    )


def squares(dtype: DType = f32) -> Kernel:
    """Return the kernel of the sums of squares of rows of 96 elements."""
    value = cast(load("x", (i * 96 + r,), dtype), f32)
    total: Statement = Accumulate((("a0", f32),), NamedCombiner("sum"), (op("mul", value, value),))
    phases = (Phase((Axis("r0", 96),), (total,)), Phase((), (Store("o", i, Scalar("a0", f32)),)))
    parameters = (Parameter("x", dtype, "in"), Parameter("o", f32, "out"))
    infos = (SymbolInfo("n0", low=0, high=1 << 20, hint=64),)
    return Kernel("subkernel1", parameters, infos, (Axis("i0", n),), (), phases, TileRequest())


def listed(
    name: str,
    kernels: Sequence[tuple[Kernel, Sequence[tuple[Size, int]]]],
    symbols: Sequence[SymbolInfo] = (),
) -> Kernel:
    """Return a foreach kernel of these subkernels, each invoked with the first of each pair of sizes.

    The second of a pair is the size in a run, where the first is symbolic. A rate is a symbol of the whole kernel.
    """
    parameters, subkernels = [], []
    for k, (kernel, loops) in enumerate(kernels):
        invocations = []
        for j, (size, _) in enumerate(loops):
            names = tuple(f"k{k}_{j}_{each.name}" for each in kernel.parameters)
            parameters += [
                replace(each, name=own) for each, own in zip(kernel.parameters, names, strict=True)
            ]
            given = (symbol("rate") if info.kind == "float" else size for info in kernel.symbols)
            invocations.append(Invocation(names, tuple(given)))
        subkernels.append(Subkernel(kernel, tuple(invocations)))
    return Kernel(name, tuple(parameters), tuple(symbols), (), (), (), TileRequest(), tuple(subkernels))


def lists() -> list[Case]:
    """Return optimiser steps and sums of squares over lists of parameters."""
    rate = SymbolInfo("rate", "float")
    fixed: list[Size] = [7, 1024, 1, 5000, 768, 0, 2304, 64]
    made = []
    for dtype in (f32, bf16):
        kernels = [(adam(dtype), [(size, int(size)) for size in fixed]), (squares(dtype), [(3, 3), (50, 50)])]
        made.append((listed(f"steps_{dtype}", kernels, (rate,)), kernels, {"rate": 0.01}))
    s = symbol("s0")
    symbolic: list[tuple[Size, int]] = [(s, 300), (100, 100), (s * 4 + 1, 1201), ((s + 7) // 8, 38)]
    kernels = [(adam(), symbolic), (squares(), [(s, 300)])]
    for low, name in ((0, "steps_of_symbolic_sizes"), (None, "steps_in_64_bits")):
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
    for foreach_kernel, subkernels, values in made:
        sizes = {}
        for k, (kernel, loops) in enumerate(subkernels):
            for j, (_, count) in enumerate(loops):
                each = {"x": 96 * count, "o": count}
                sizes |= {f"k{k}_{j}_{p.name}": max(1, each.get(p.name, count)) for p in kernel.parameters}
        rtol = 1e-2 if "bf16" in foreach_kernel.name else 2e-5
        found.append(Case(foreach_kernel, sizes, {}, values, rtol, 1e-5))
    return found


def suite() -> list[Case]:
    """Return the foreach kernels of the conformance suite."""
    found = []
    for case in conformance_cases():
        if case.kernel.subkernels:
            sizes = {name: len(content) for name, content in case.buffers.items()}
            found.append(Case(requested(case.kernel), sizes, {}, dict(case.symbols)))
    return found


def tuned() -> list[Case]:
    """Return some of the foreach kernels with each of their candidate schedules."""
    found = []
    for case in (*lists(), *suite()):
        if case.kernel.name in ("steps_f32", "steps_of_symbolic_sizes", "conform_loops_of_different_kinds"):
            for k, kernel in enumerate(choices(case.kernel)[1:]):
                found.append(replace(case, kernel=replace(kernel, name=f"{kernel.name}_{k}")))
    return found


def vectorised(kernel: Kernel) -> Kernel:
    """Return the kernel for large sizes that are multiples of 16, whose accesses can be vectorised."""
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
    listed("lists", [(vectorised(adam()), PARAMETERS)], (*RATE, SymbolInfo("s0", low=0, high=1 << 20))),
    listed(
        "others", [(squares(), [(16, 0), (64, 0)]), (vectorised(adam(bf16)), [(4096, 0), (1 << 16, 0)])], RATE
    ),
]
"""Foreach kernels whose accesses move 16 bytes a thread."""


if __name__ == "__main__":
    triton_cases.main(cases(), sys.argv[1:])
