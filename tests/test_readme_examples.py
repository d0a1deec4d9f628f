"""Tests that the Python code of every README, and of every page for users, runs unchanged.

The blocks of a page are one program. Comments on the line before a block change that: `<!-- not run: reason -->`, and
`<!-- needs: modules -->` for one that runs where these are installed. `<!-- first` begins a comment of code that stands
for what a reader has, such as a model.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_programs import outcomes_of
from interpreted import cases_in

ROOT = Path(__file__).resolve().parent.parent
FOR_USERS = (
    "artifacts", "attention", "compile-schemes", "debugging", "deploy-c", "devices", "ecosystem", "explain", "faq",
    "getting-started", "index", "integrations", "interchange", "passes", "profiling", "reports",
)  # fmt: skip
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("packages/*/README.md")),
    ROOT / "examples" / "plan_viewer" / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in FOR_USERS),
]
NOT_RUN = {"docs/debugging.md": 1, "docs/devices.md": 1, "docs/getting-started.md": 1, "docs/reports.md": 1}
"""Number of blocks that are not run, by page: one needs a GPU, others the folder of a failure, a device and a test."""

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|needs): (?P<text>[^\n]*) -->\n)?^```python\n(?P<code>.*?)^```"
    r"|^<!-- first\n(?P<hidden>.*?)^-->",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of Python in a page."""

    code: str
    needs: tuple[str, ...] = ()
    run: bool = True


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        needs = tuple(block["text"].split()) if block["mark"] == "needs" else ()
        found.append(Block(block["hidden"] or block["code"], needs, block["mark"] != "not run"))
    return found


def written(blocks: list[Block], folder: Path) -> Path:
    """Write blocks as one program in a folder."""
    folder.mkdir(exist_ok=True)
    script = folder / "example.py"
    script.write_text("\n".join(block.code for block in blocks), encoding="utf-8")
    return script


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, dict[str, Any]]:
    """Exit code and output of each page's program, all run by one process."""
    folder, pages = tmp_path_factory.mktemp("pages"), cases_in(request, "page")
    scripts = {}
    for number, page in enumerate(pages):
        blocks = [block for block in blocks_of(page) if block.run and not block.needs]
        scripts[page] = written(blocks, folder / str(number))
    found = outcomes_of(list(scripts.values()))
    return {page: found[script] for page, script in scripts.items()}


def run(blocks: list[Block], folder: Path) -> None:
    """Run blocks as one program in a process of its own."""
    script = written(blocks, folder)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=170, cwd=folder
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, outcomes: dict[Path, dict[str, Any]]) -> None:
    assert blocks_of(page), f"{page.relative_to(ROOT)} shows no example"
    assert outcomes[page]["code"] == 0, outcomes[page]["text"]


NEEDY = [page for page in PAGES if any(block.needs for block in blocks_of(page))]


@pytest.mark.parametrize("page", NEEDY, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_that_need_other_libraries_run(page: Path, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.run]
    for module in dict.fromkeys(name for block in blocks for name in block.needs):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    run(blocks, tmp_path)


def test_blocks_that_do_not_run_are_counted() -> None:
    counts = {str(page.relative_to(ROOT)): sum(not block.run for block in blocks_of(page)) for page in PAGES}
    assert {page: count for page, count in counts.items() if count} == NOT_RUN


def test_no_page_for_users_is_left_out() -> None:
    """Pages with Python are run here, or by the tests of architecture and worked examples."""
    shown = {
        page
        for page in (ROOT / "docs").glob("*.md")
        if "```python" in page.read_text(encoding="utf-8") and page.name != "architecture.md"
    }
    assert shown - set(PAGES) == set()
