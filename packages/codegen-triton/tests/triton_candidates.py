"""All candidate configs of the corpus and of the conformance suite, run in Triton's interpreter.

``TRITON_INTERPRET=1 python triton_candidates.py suite corpus`` prints one line of JSON for each case: its name, the
number of its candidates, and the difference from the reference interpreter, empty where there is none. Cases that test
arithmetic, which does not depend on tiles, run only where the word `all` is given too.
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

import triton_cases
import triton_corpus
from triton_scheduled import MACHINE, requested, scheduled

from litz_codegen_triton.runtime.interpret import run_kernel
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.tune.candidate_configs import candidates
from litz_ir.errors import KernelError
from litz_ir.interp.kernel import run_kernel as run_reference
from litz_ir.plan import Kernel
from litz_ir.target.cases import all_cases
from litz_ir.target.cases.case import Case
from litz_ir.target.cases.elementwise import elementwise_cases

SMALL_CHIP = replace(MACHINE, model=replace(MACHINE.model, sm_count=1))
"""A chip with one SM, on which small kernels have large tiles and so candidates."""

Difference = Callable[[Kernel, Path], str]


def of_the_suite(case: Case) -> Difference:
    """Return the comparison of a run of a conformance case, which gives the difference or ''."""

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


def of_the_corpus(case: triton_cases.Case) -> Difference:
    """Return the comparison of a run of a case of the corpus, which gives the difference or ''."""
    wanted: Mapping[str, Any] = triton_cases.reference(case)

    def difference(kernel: Kernel, folder: Path) -> str:
        found = triton_cases.interpreted(replace(case, kernel=kernel), folder)
        return triton_cases.difference(case, found, wanted)

    return difference


def suite(*, arithmetic: bool = False) -> Iterator[tuple[str, Kernel, Difference]]:
    """Yield the kernels of the conformance suite: a name, the kernel with an empty request, and its comparison."""
    skipped = set() if arithmetic else {case.name for case in elementwise_cases()}
    for case in all_cases():
        if not case.kernel.scratch and case.name not in skipped:
            yield case.name, requested(case.kernel), of_the_suite(case)


def corpus(*, arithmetic: bool = False) -> Iterator[tuple[str, Kernel, Difference]]:
    """Yield the kernels of the corpus, likewise."""
    for case in triton_corpus.cases():
        if arithmetic or not case.name.startswith("operations"):
            yield case.name, requested(case.kernel), of_the_corpus(case)


CASES = {"suite": suite, "corpus": corpus}


def compared(kernel: Kernel, difference: Difference, folder: Path) -> str:
    """Return the difference in a run; an exception is a difference too."""
    try:
        return difference(kernel, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(words: list[str]) -> None:
    """Run the candidates of each case.

    Where the default schedule differs from the reference too (Triton's interpreter rounds twice in a fused
    multiply-add, for one), a candidate must have the same difference.
    """
    chosen = [cases(arithmetic="all" in words) for name, cases in CASES.items() if name in words]
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel, difference in chain(*chosen):
            found = ""
            others = candidates(schedule_kernel(kernel, SMALL_CHIP), SMALL_CHIP)[1:]
            for other in others:
                complaint = compared(other, difference, Path(folder))
                if complaint and complaint != compared(kernel, difference, Path(folder)):
                    found = f"{other.schedule}: {complaint}"
            print(json.dumps({"case": name, "candidates": len(others), "difference": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
