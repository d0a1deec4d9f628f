"""Process that tries graphs, so that one which ends the process, or hangs, costs this process alone.

``python -m litz.debugging.worker`` reads one JSON object a line (``{"graph": path, "check": ..., "ratio": ...,
"replay": {...}}``) and answers each with the kind of the failure as JSON; empty for none. It first answers once when it
is ready.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import torch
from torch.fx import GraphModule

from litz.debugging.replay import Replay
from litz.debugging.verdict import SEED, failure

_NAME = "litz_written_graph"
"""Name of the module of a written graph."""


def load_graph(path: Path) -> tuple[GraphModule, list[Any]]:
    """Return the graph of a module that :func:`litz.reports.fx_source.graph_source` wrote, and its inputs.

    The module is run, and draws elements from a seeded generator.
    """
    spec = importlib.util.spec_from_file_location(_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    torch.manual_seed(SEED)
    spec.loader.exec_module(module)
    return module.graph(), list(module.INPUTS)


def main(modules: Sequence[str]) -> None:
    """Import ``modules``, then answer requests until the input ends."""
    # Programs and compilers may print: answers have a descriptor of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for name in modules:
        importlib.import_module(name)
    _answer(answers, "")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            gm, inputs = load_graph(Path(request["graph"]))
            found = failure(gm, inputs, Replay(**request["replay"]), request["check"], request["ratio"])
        except Exception:
            found = ""  # a graph that cannot be built shows nothing
        torch._dynamo.reset()
        _answer(answers, found)


def _answer(answers: TextIO, text: str) -> None:
    """Write one answer."""
    answers.write(json.dumps(text) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
