"""The intermediate representations of litz: loop graphs, fused graphs, plans and kernels.

Names are imported from their modules on first use, so `import litz_ir` is cheap and a program that runs a stored plan
never loads the parser. The README is the distribution's description; `docs/architecture.md`,
`docs/glossary.md` and `docs/versions.md` are in the repository of litz.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_ir.errors import LitzError
    from litz_ir.fused.group import FusedGraph
    from litz_ir.loops.nodes import LoopGraph
    from litz_ir.plan.kernel import Kernel
    from litz_ir.plan.program import Plan
    from litz_ir.serial import digest, from_json, to_json
    from litz_ir.text import from_text, to_text
    from litz_ir.verifier import verify

__version__ = "0.2.0"

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

_MODULES = {
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

__getattr__, __dir__ = deferred(__name__, _MODULES)
