"""Every tile that tuning may choose, in Triton's interpreter: those of the corpus and of the conformance suite.

``TRITON_INTERPRET=1 python triton_candidates.py suite corpus`` prints one line of JSON for each case: its name, how
many candidates it has, and what differs from the reference interpreter, empty when nothing does. What a map computes at
a point does not depend on tiles: those that are there for their arithmetic are run too where the word `all` is given.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import triton_corpus
from triton_scheduled import MACHINE, requested, scheduled

from litz_codegen_triton.runtime.interpret import run_kernel
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.tune import candidates
from litz_ir.errors import KernelError
from litz_ir.interp.kernel import run_kernel as run_reference
from litz_ir.plan import Kernel
from litz_ir.target.cases import all_cases
from litz_ir.target.cases.case import Case
from litz_ir.target.cases.elementwise import elementwise_cases

LITTLE = replace(MACHINE, sm_count=1)
"""So few SMs that small kernels have large tiles, and candidates beside them."""

Difference = Callable[[Kernel, Path], str]


def of_the_suite(case: Case) -> Difference:
    """What differs in a run of a conformance case."""

    def difference(kernel: Kernel, folder: Path) -> str:
        found, wanted = case.fresh(), case.fresh()
        try:
            run_kernel(scheduled(kernel), found, case.symbols, folder)
        except KernelError as error:
            return "" if case.fails else str(error)
        if case.fails:
            return "no index is found out of range"
        run_reference(case.kernel, wanted, case.symbols)
        complaints = (case.difference(name, wanted[name], found[name]) for name in found)
        return next(filter(None, complaints), "")

    return difference


def of_the_corpus(case: triton_corpus.Case) -> Difference:
    """What differs in a run of a case of the corpus."""
    wanted: Mapping[str, Any] = triton_corpus.reference(case)

    def difference(kernel: Kernel, folder: Path) -> str:
        found = triton_corpus.interpreted(replace(case, kernel=kernel), folder)
        return triton_corpus.difference(case, found, wanted)

    return difference


def suite(*, arithmetic: bool = False) -> Iterator[tuple[str, Kernel, Difference]]:
    """The kernels of the conformance suite by name, with an empty request, and how each is compared."""
    dull = set() if arithmetic else {case.name for case in elementwise_cases()}
    for case in all_cases():
        if not case.kernel.scratch and case.name not in dull:
            yield case.name, requested(case.kernel), of_the_suite(case)


def corpus(*, arithmetic: bool = False) -> Iterator[tuple[str, Kernel, Difference]]:
    """Those of the corpus."""
    for case in triton_corpus.cases():
        if arithmetic or not case.name.startswith("operations"):
            yield case.name, requested(case.kernel), of_the_corpus(case)


CASES = {"suite": suite, "corpus": corpus}


def compared(kernel: Kernel, difference: Difference, folder: Path) -> str:
    """What differs in a run; an exception is a difference too."""
    try:
        return difference(kernel, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(words: list[str]) -> None:
    """Run the candidates of each case. Where the interpreter itself computes otherwise (it rounds twice in a fused
    multiplication, say), they have to differ in the same way."""
    chosen = [cases(arithmetic="all" in words) for name, cases in CASES.items() if name in words]
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel, difference in chain(*chosen):
            found = ""
            others = candidates(schedule_kernel(kernel, LITTLE), LITTLE)[1:]
            for other in others:
                complaint = compared(other, difference, Path(folder))
                if complaint and complaint != compared(kernel, difference, Path(folder)):
                    found = f"{other.schedule}: {complaint}"
            print(json.dumps({"case": name, "candidates": len(others), "difference": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
