"""Pages of the site from outside docs/, and links of all pages as they are on the site.

READMEs, changelogs and `CONTRIBUTING.md` are written for the repository. On the site they are pages too; links between
them and pages under docs/ work in both places. A link to a file that is no page, such as a module, becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_NAMED = re.compile(r"`(?P<path>docs/[\w/.-]+\.md)`")
_FENCE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$", re.MULTILINE | re.DOTALL)


def pages_outside() -> dict[str, str]:
    """Return the pages that are not under docs/: their paths on the site by their paths in the repository."""
    found = {"CONTRIBUTING.md": "contributing/index.md", "examples/README.md": "examples/index.md"}
    for package in sorted((ROOT / "packages").iterdir()):
        found[f"packages/{package.name}/README.md"] = f"packages/{package.name}.md"
        found[f"packages/{package.name}/CHANGELOG.md"] = f"changes/{package.name}.md"
    for page in sorted((ROOT / "examples").glob("*/README.md")):
        found[f"examples/{page.parent.name}/README.md"] = f"examples/{page.parent.name}.md"
    return found


def links_of_site(markdown: str, source: str, shown: str, known: set[str]) -> str:
    """Return a page's text with links that hold on the site.

    ``source`` is the page's path in the repository, ``shown`` that on the site, ``known`` the files of the site. Blocks
    of code stay as they are.
    """
    outside = pages_outside()

    def on_site(path: str) -> str | None:
        """Return the path of a file of the repository on the site, if it is there."""
        there = outside.get(path) or path.removeprefix("docs/")
        return there if there in known and (path in outside or path.startswith("docs/")) else None

    def relative(there: str) -> str:
        return posixpath.relpath(there, posixpath.dirname(shown) or ".")

    def linked(found: re.Match[str]) -> str:
        text, target = found["text"], found["target"]
        path, mark, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return found[0]
        there = on_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
        return f"[{text}]({relative(there)}{mark}{anchor})" if there else text

    def named(found: re.Match[str]) -> str:
        there = on_site(found["path"])
        return f"[{found[0]}]({relative(there)})" if there and there != shown else found[0]

    def outside_code(text: str) -> str:
        text = _LINK.sub(linked, text)
        # A README names pages by their paths, since an index of packages shows it without the repository.
        return text if source.startswith("docs/") else _NAMED.sub(named, text)

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [outside_code(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, outside_code(markdown[end:])])
