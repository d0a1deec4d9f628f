"""Refuse the name of a device kind, and torch's module of it, outside the modules that own them.

Passes ask what a device can do (`litz_ir.target.Capabilities`), the frontend asks `litz.devices`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KIND = "cuda"
OWNERS = ("packages/codegen-triton/src", "packages/frontend/src/litz/devices.py")
"""Folders and modules that may name the kind: its target, and the frontend's module of torch's devices."""


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that names the kind, alone or with an ordinal, and of torch's module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if text.partition(":")[0] == KIND:
                yield node.lineno, repr(text)
            case ast.Attribute(value=ast.Name(id="torch"), attr="cuda"):
                yield node.lineno, "torch.cuda"
            case ast.ImportFrom(module="torch", names=names) if any(each.name == KIND for each in names):
                yield node.lineno, "torch.cuda"
            case ast.ImportFrom(module=str(module)) if module.startswith("torch.cuda"):
                yield node.lineno, module


def is_owner(path: str) -> bool:
    """Report whether a source, by its path from the root, may name the kind."""
    return any(path == owner or path.startswith(f"{owner}/") for owner in OWNERS)


def main() -> int:
    """Print every name outside its owners; exit code 1 if there is one."""
    found = 0
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not is_owner(name):
            for line, text in names_in(path.read_text(encoding="utf-8")):
                print(f"{name}:{line}: {text}: ask Capabilities, or litz.devices", file=sys.stderr)
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
