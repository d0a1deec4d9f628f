"""Origins of FX nodes: source line and module path."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import torch
from torch.fx import Node

from litz_ir.origin import Origin

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)[^\n]*(?:\n(?P<source>[^\n]*))?')
_TORCH = str(Path(torch.__file__).parent)


def origin_of(node: Node, path: str = "") -> Origin:
    """Origin of a node: its name and operation, and from its metadata the module path and source line.

    ``path`` is the path of the node's subgraph and prefixes the name, as in ``true_graph_0.``.
    """
    file, line, source = _user_frame(node.meta.get("stack_trace") or "")
    operation = str(node.target) if node.op == "call_function" else node.op
    return Origin(f"{path}{node.name}", operation, _module_path(node), file, line, source)


@lru_cache(maxsize=4096)
def _user_frame(trace: str) -> tuple[str, int, str]:
    """Innermost stack frame outside torch, else the innermost; ``("", 0, "")`` for an empty trace."""
    frames = list(_FRAME.finditer(trace))
    if not frames:
        return "", 0, ""
    own = [f for f in frames if not f["file"].startswith(_TORCH)]
    frame = (own or frames)[-1]
    return frame["file"], int(frame["line"]), (frame["source"] or "").strip()


def _module_path(node: Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(next(reversed(stack.values()))[0])
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", path)
    return re.sub(r"^L\['[^']+'\]\.?", "", path)
