"""The nouns of litz: what is passed between stages, and what each of them means.

The names here are fetched from their modules when they are first asked for, so `import litz_ir` costs nothing and a
program that runs a stored plan never loads the parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litz_ir.errors import LitzError
    from litz_ir.fused.group import FusedGraph
    from litz_ir.loops.nodes import LoopGraph
    from litz_ir.plan.kernel import Kernel
    from litz_ir.plan.program import Plan
    from litz_ir.serial import digest, from_json, to_json
    from litz_ir.text import from_text, to_text
    from litz_ir.verifier import verify

__version__ = "0.1.0"

__all__ = [
    "FusedGraph",
    "Kernel",
    "LitzError",
    "LoopGraph",
    "Plan",
    "digest",
    "from_json",
    "from_text",
    "to_json",
    "to_text",
    "verify",
]

_HOMES = {
    "FusedGraph": "litz_ir.fused.group",
    "Kernel": "litz_ir.plan.kernel",
    "LitzError": "litz_ir.errors",
    "LoopGraph": "litz_ir.loops.nodes",
    "Plan": "litz_ir.plan.program",
    "digest": "litz_ir.serial",
    "from_json": "litz_ir.serial",
    "from_text": "litz_ir.text",
    "to_json": "litz_ir.serial",
    "to_text": "litz_ir.text",
    "verify": "litz_ir.verifier",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'litz_ir' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(home), name)
