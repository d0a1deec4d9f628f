"""``TRITON_INTERPRET=1 python tests/triton_attention.py``: the cases of ``flex_attention_cases`` in Triton's
interpreter.

Prints a line of JSON for each: its name, the difference from eager, and the kernels that run a nested reduction point
by point.
"""

from __future__ import annotations

import json
import re
import tempfile
from functools import partial
from pathlib import Path

import flex_attention_cases

from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan

_SERIAL = re.compile(r"^ *nested(_\d+)? = tl\.full", re.MULTILINE)


def main() -> None:
    """Run every case and print its line."""
    with tempfile.TemporaryDirectory() as folder:
        run = partial(run_plan, folder=Path(folder))
        for name, case in flex_attention_cases.CASES.items():
            try:
                difference, plans = flex_attention_cases.differs(case, run)
            except Exception as error:
                difference, plans = f"{type(error).__name__}: {error}", ()
            kernels = [kernel for plan in plans for kernel in plan.kernels]
            serial = [kernel.name for kernel in kernels if _SERIAL.search(emit_kernel(kernel).text)]
            print(json.dumps({"case": name, "difference": difference, "serial": serial}), flush=True)


if __name__ == "__main__":
    main()
