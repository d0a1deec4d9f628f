"""Reductions and scans of the corpus and of the conformance suite, written by the definitions of their kinds.

``TRITON_INTERPRET=1 python triton_reduction_kinds.py`` prints one line of JSON for each: its name, and the difference
from the reference interpreter, empty where there is none.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from unittest.mock import patch

from triton_candidates import Difference, compared, of_the_corpus, of_the_suite
from triton_nested_reductions import softmax_sums
from triton_reductions import clusters, reductions
from triton_scans import lookback_scans, scans
from triton_scheduled import requested

from litz_codegen_triton.emit.reductions import combiners, emitters
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Kernel, ScanStore
from litz_ir.target.cases import all_cases

FORMS = (
    "kinds_f32", "kinds_u8_loop", "kinds_i64_in_cluster_of_2", "logic_loop", "welford_loop", "argmax_loop",
    "online_softmax_loop_in_cluster_of_2", "softmax_sum_in_tiles", "full_sum", "point_phase", "empty_row",
    "scan_prod_f32", "scan_argmax_loop", "lookback_sum_i64",
)  # fmt: skip
"""Cases of the corpus that have each form of a reduction or a scan."""


def kinds_of(kernel: Kernel) -> set[str]:
    """Return the kinds that a kernel combines elements by."""
    statements = [each for phase in kernel.phases for each in phase.statements]
    found = [each.combiner for each in statements if isinstance(each, (Accumulate, ScanStore))]
    return {each.name for each in found if isinstance(each, NamedCombiner) and each.kind.combines}


def cases() -> Iterator[tuple[str, Kernel, Difference]]:
    """Yield kernels of each form, and one of each further kind: a name, the kernel, and its comparison."""
    covered: set[str] = set()
    for case in chain(reductions(), clusters(), scans(), lookback_scans(), softmax_sums()):
        if case.name in FORMS:
            covered |= kinds_of(case.kernel)
            yield case.name, case.kernel, of_the_corpus(case)
    for conformance in all_cases():
        further = kinds_of(conformance.kernel) - covered
        if further:
            covered |= further
            yield conformance.name, requested(conformance.kernel), of_the_suite(conformance)


@contextmanager
def without_spellings() -> Iterator[None]:
    """Remove the rows of all kinds of reductions for a while."""
    with (
        patch.object(combiners, "FLOAT_SPELLINGS", {}),
        patch.object(combiners, "INTEGER_SPELLINGS", {}),
        patch.object(emitters, "EMITTERS", {}),
    ):
        yield


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, without_spellings():
        for name, kernel, difference in cases():
            found = compared(kernel, difference, Path(directory))
            print(json.dumps({"case": name, "difference": found}), flush=True)
