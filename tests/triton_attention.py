"""``TRITON_INTERPRET=1 python tests/triton_attention.py FOLDER``: the cases of ``flex_attention_cases`` in Triton's
interpreter.

Prints a line of JSON for each: its name, the difference from eager, and the kernels that run a nested reduction point
by point.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import flex_attention_cases

from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan

_SERIAL = re.compile(r"^ *nested(_\d+)? = tl\.full", re.MULTILINE)


def main(folder: Path, names: Sequence[str]) -> None:
    """Run every case, or the named ones, and print its line."""
    run = partial(run_plan, folder=folder)
    for name in names or flex_attention_cases.CASES:
        try:
            difference, plans = flex_attention_cases.differs(flex_attention_cases.CASES[name], run)
        except Exception as error:
            difference, plans = f"{type(error).__name__}: {error}", ()
        kernels = [kernel for plan in plans for kernel in plan.kernels]
        serial = [kernel.name for kernel in kernels if _SERIAL.search(emit_kernel(kernel).text)]
        print(json.dumps({"case": name, "difference": difference, "serial": serial}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
