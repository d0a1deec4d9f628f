"""Check that every relative link in the repository's Markdown pages leads to a file that exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SKIPPED = {".git", ".nox", ".venv", "build", "dist"}


def broken_links(page: Path) -> list[str]:
    """Return the page's relative link targets that do not exist; code blocks are not read."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in LINK.findall(text):
        path = target.partition("#")[0]
        if (
            path
            and "://" not in target
            and not target.startswith("mailto:")
            and not (page.parent / path).exists()
        ):
            broken.append(target)
    return broken


def main() -> int:
    """Print every broken link; exit code 1 if there is one."""
    count = 0
    for page in sorted(ROOT.rglob("*.md")):
        if SKIPPED.isdisjoint(page.relative_to(ROOT).parts):
            for target in broken_links(page):
                print(f"{page.relative_to(ROOT)}: no file for the link {target}", file=sys.stderr)
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())
