"""Refuse a module of a package that has too many lines, and a folder that has too many modules.

What is larger has more than one subject, and is divided by them.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400
MAX_MODULES = 16
"""Most modules of a folder, its ``__init__`` apart."""


def faults(root: Path) -> list[str]:
    """Return a line for each module and each folder under the packages of ``root`` that is too large."""
    modules: Counter[Path] = Counter()
    found = []
    for path in sorted(root.glob("packages/*/src/**/*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            found.append(f"{path.relative_to(root).as_posix()}: {lines} lines, at most {MAX_LINES}")
        modules[path.parent] += path.name != "__init__.py"
    found += [
        f"{folder.relative_to(root).as_posix()}: {number} modules, at most {MAX_MODULES}"
        for folder, number in modules.items()
        if number > MAX_MODULES
    ]
    return found


def main() -> int:
    """Print what is too large; exit code 1 if anything is."""
    found = faults(ROOT)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
