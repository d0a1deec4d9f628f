"""Matmuls and convolutions as generated kernels on the NVIDIA GPU at hand, compiled by `torch.compile`.

``python tests/generated_on_device.py [NAME …]`` prints a line of JSON for each case of ``generated_matmuls.py``,
``generated_convolutions.py`` and ``depthwise_convolutions.py``; ``eager`` is the error of eager for a case that it
refuses on a GPU. Exit code 1 when one is wrong.

A result is right when it is about as near to an f64 run of eager as eager's own; where a function takes no f64, within
two roundings of eager's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import depthwise_convolutions
import generated_convolutions
import generated_matmuls
import torch
from forms.judge import difference, results, widened
from generated_matmuls import Case
from torch import Tensor
from torch.fx import GraphModule

import litz
from litz.loading import Compiled

CASES = {
    **generated_matmuls.CASES,
    **{f"convolution {k}": v for k, v in generated_convolutions.CASES.items()},
    **{f"depthwise {k}": v for k, v in depthwise_convolutions.CASES.items()},
}


def exact(case: Case, given: Sequence[Tensor]) -> list[Tensor] | None:
    """Return eager's results in f64, if the function takes that dtype."""
    try:
        return results(
            case.call, [each if each is None else widened(each) for each in given], gradients=case.gradients
        )
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def narrow_difference(found: Tensor, eager: Tensor) -> str:
    """Describe the difference of two fp8 matmuls, which tensor cores accumulate with 14 bits."""
    off, most = float((found - eager).abs().max()), float(eager.abs().max())
    return "" if off <= 2.0**-12 * most else f"off by {off:.3g} of {most:.3g}"


def judged(case: Case) -> dict[str, Any]:
    """Return an error or difference of a case, else an empty text, and the number of kernels with `tl.dot`."""
    seen = list[Compiled]()

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return litz.compile_fx(gm, inputs, config=chosen, observers=(seen.append,))

    tf32 = case.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    given = [each if each is None else each.cuda() for each in case.arguments]
    try:
        eager = results(case.call, given, gradients=case.gradients)
    except RuntimeError as error:
        return {"wrong": "", "dot_kernels": 0, "eager": str(error)[:100]}
    reference = exact(case, given) or eager
    wrong = ""
    try:
        with litz.config.patch(fallback="error", force="generated_matmuls=all") as chosen:
            torch._dynamo.reset()
            compiled = torch.compile(case.call, backend=backend, dynamic=case.dynamic)
            found = results(compiled, given, gradients=case.gradients)
        wrong = difference(found, eager, reference)
        if wrong and reference is eager and found[0].dtype == torch.float32:
            wrong = narrow_difference(found[0], eager[0])
        torch.cuda.synchronize()
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"[:300]
    texts = [unit.text for each in seen if each.artifact is not None for unit in each.artifact.units]
    return {"wrong": wrong, "dot_kernels": sum("tl.dot(" in text for text in texts)}


def main(names: Sequence[str]) -> int:
    """Judge every case, or the named ones."""
    failed = 0
    torch.set_default_device("cuda")
    for name in names or CASES:
        found = judged(CASES[name])
        failed += bool(found["wrong"])
        print(json.dumps({"case": name, **found, "expected": CASES[name].dot_kernels}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
