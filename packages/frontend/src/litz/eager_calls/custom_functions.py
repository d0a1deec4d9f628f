"""Custom autograd functions inside ``torch.func`` transforms, whose gradients and vmap rules Dynamo does not trace.

Dynamo traces the forward of a ``torch.autograd.Function`` as ordinary operations where no argument needs a gradient,
as it sees it. Under ``torch.func.grad`` and its relatives every argument does, and the operations' own gradients would
replace the function's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import CodeType

from torch._dynamo.exc import SkipFrame
from torch._functorch.autograd_function import autograd_function_apply
from torch.autograd import Function
from torch.fx import GraphModule, Node

from litz.notices import log_once

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
"""A frame in the text of a stack trace."""

_Functions = dict[tuple[str, str], list[tuple[CodeType, str]]]
"""Code of the forwards of custom functions, and the functions' names, by file and name of the code."""


def refuse_transformed_functions(gm: GraphModule) -> None:
    """Raise ``SkipFrame``, so that the program's frame runs in eager, where a transform reaches a custom function."""
    nesting = 0
    functions: _Functions | None = None
    for node in gm.graph.nodes:
        target = getattr(node.target, "__name__", "")
        nesting += target.endswith("_increment_nesting") - target.endswith("_decrement_nesting")
        if not nesting:
            continue
        functions = _forwards() if functions is None else functions
        name = _custom_function(node, functions)
        if name is not None:
            reason = (
                f"{name} has a gradient or vmap rule of its own, which Dynamo does not trace under torch.func"
            )
            log_once(
                f"litz: a function runs in eager: {reason}. Call torch.func outside the compiled function."
            )
            raise SkipFrame(reason)


def _custom_function(node: Node, functions: _Functions) -> str | None:
    """Return the name of the custom function that a node belongs to."""
    if node.target is autograd_function_apply:
        return str(node.name)
    for file, line, name in _FRAME.findall(node.meta.get("stack_trace") or ""):
        for code, function in functions.get((file, name), ()):
            lines = [number for _, _, number in code.co_lines() if number is not None]
            if min(lines) <= int(line) <= max(lines):
                return function
    return None


def _forwards() -> _Functions:
    """Return the code of the forward of each custom function."""
    found: _Functions = {}
    for function in _subclasses(Function):
        code = getattr(inspect.unwrap(function.forward), "__code__", None)
        if isinstance(code, CodeType):
            found.setdefault((code.co_filename, code.co_name), []).append((code, function.__qualname__))
    return found


def _subclasses(function: type[Function]) -> Iterator[type[Function]]:
    for subclass in function.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
