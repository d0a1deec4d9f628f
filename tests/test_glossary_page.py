"""`docs/glossary.md` names what exists, where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "glossary.md"
CODE = re.compile(r"`([^`]+)`")
DOTTED = re.compile(r"litz[a-z_]*(\.[A-Za-z_]\w*)*")


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """The concept, the names and the modules of each row of the page's tables."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 4 and cells[0] != "concept":
            yield cells[0], CODE.findall(cells[1]), CODE.findall(cells[3])


ROWS = list(rows())


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 100


@pytest.mark.parametrize(("concept", "names", "modules"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row(concept: str, names: list[str], modules: list[str]) -> None:
    places = [import_module(module) for module in modules if DOTTED.fullmatch(module)]
    assert places, f"{concept}: no module"
    for name in names:
        first, *rest = name.split(".")
        if not first.isidentifier() or not first[0].isupper():
            continue  # an option, a word of the text form, a function named with its arguments
        owner = next((getattr(place, first) for place in places if hasattr(place, first)), None)
        assert owner is not None, f"{concept}: no {first} in {', '.join(modules)}"
        for part in rest:
            known = {*dir(owner), *getattr(owner, "__annotations__", {})}
            assert part in known, f"{concept}: {first} has no {part}"
