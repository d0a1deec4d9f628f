"""Name the modules of packages that have many lines, and the folders that have many modules.

What is larger may have more than one subject. It is divided by them where it has, and not by its lines.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
MAX_MODULES = 20
"""Most modules of a folder, its ``__init__`` apart."""


def large(root: Path) -> list[str]:
    """Return a line for each module and each folder under the packages of ``root`` that is larger."""
    modules: Counter[Path] = Counter()
    found = []
    for path in sorted(root.glob("packages/*/src/**/*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            found.append(f"{path.relative_to(root).as_posix()}: {lines} lines, more than {MAX_LINES}")
        modules[path.parent] += path.name != "__init__.py"
    found += [
        f"{folder.relative_to(root).as_posix()}: {number} modules, more than {MAX_MODULES}"
        for folder, number in modules.items()
        if number > MAX_MODULES
    ]
    return found


def main() -> None:
    """Print what is large."""
    for line in large(ROOT):
        print(f"warning: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
