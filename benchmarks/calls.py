"""Print the ATen calls of each case, as `litz.explain` reports them: a line of JSON for each case and mode.

`python benchmarks/calls.py --topics pointwise,reduction --modes infer,train`. Calls other than matmuls, convolutions,
attention and random numbers are work that generated kernels should do.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from cases import CASES

import litz


def calls_of(name: str, mode: str) -> dict[str, Any]:
    """Return a case's calls, its operations without a rule, and the number of graphs that run as ATen operations."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    program, args = CASES[name].build()
    training = mode == "train"
    if isinstance(program, torch.nn.Module):
        program.train(training)
    elif training:
        args = tuple(
            a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
        )
    with torch.set_grad_enabled(training), litz.config.patch(cache=False):
        found = litz.explain(program, *args, backward=training)
    return {
        "case": name,
        "mode": mode,
        "kernels": len(found.kernels),
        "calls": sorted({call.target for call in found.calls}),
        "without_rule": sorted({left.target for left in found.fallbacks}),
        "uncompiled": found.uncompiled,
    }


def main() -> None:
    """Print a line for every case of the chosen topics and modes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--topics", default="", help=", ".join(sorted({case.topic for case in CASES.values()}))
    )
    parser.add_argument("--cases", default="", help="names, with commas between them; all of them by default")
    parser.add_argument("--modes", default="infer,train")
    options = parser.parse_args()
    topics, names = (set(filter(None, text.split(","))) for text in (options.topics, options.cases))
    for name, case in CASES.items():
        if (not topics or case.topic in topics) and (not names or name in names):
            for mode in options.modes.split(","):
                if mode == "infer" or case.trains:
                    print(json.dumps(calls_of(name, mode)), flush=True)


if __name__ == "__main__":
    main()
