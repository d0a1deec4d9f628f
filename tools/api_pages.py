"""Write and check the reference pages in docs/api: one for each module with public names, and a list of all.

`--write` rewrites them, `--check` compares. A page names its module, and mkdocstrings fills it in from docstrings when
the pages are built: it reads sources and imports nothing. `--shown FOLDER` looks up every public name in the pages that
were built into FOLDER. `--bare` lists public names, and members of public classes, without a docstring.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from public_api import declared_all, public_names
from signatures import Definition, Sources
from workspace import read_packages

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "api"
Modules = Mapping[str, tuple[str, ...]]


def modules_of(package: Path) -> Modules:
    """Return the public names of a package by the module that offers them, for the import folder `package`."""
    found: dict[str, list[str]] = {}
    for module, name in public_names(package):
        found.setdefault(module, []).append(name)
    return {module: tuple(names) for module, names in found.items()}


def every_module(sources: Sources) -> dict[str, Modules]:
    """Return the modules of every package, by the name of its distribution, lowest layer first."""
    packages = read_packages(ROOT)
    folders = {folder.parent.name: folder for folder in sources.folders}
    return {each.name: modules_of(folders[key] / each.module) for key, each in packages.items()}


def page(module: str, names: tuple[str, ...], sources: Sources) -> str:
    """Return the page of a module, whose names are listed where its `__all__` does not list them.

    A name that is a folder's too, such as `litz.explain`, is shown by the module that defines it.
    """
    lines = [f"# {module}", "", f"::: {module}"]
    if declared_all(_tree(module, sources)) is None:
        lines += ["    options:", "      members:", *(f"        - {name}" for name in names)]
    for name in names:
        found = sources.definition(module, name)
        if found.nodes and sources.module(f"{module}.{name}") is not None:
            lines += ["", f"::: {found.module}.{found.name}", "    options:", "      show_root_heading: true"]
    return "\n".join([*lines, ""])


def index(packages: Mapping[str, Modules], sources: Sources) -> str:
    """Return the page that lists all others, each with the first sentence of its module."""
    lines = [
        "# Reference",
        "",
        "The public names of every package with their signatures, fields and docstrings. They are those that",
        "`packages/*/tests/public_api.txt` lists; the [version contract](../versions.md) says what a change means.",
    ]
    for distribution, modules in packages.items():
        lines += ["", f"## {distribution}", "", "| module | |", "|---|---|"]
        lines += [f"| [{module}]({module}.md) | {_summary(module, sources)} |" for module in modules]
    return "\n".join([*lines, ""])


def pages(sources: Sources) -> dict[str, str]:
    """Return the text of every page by its file name."""
    packages = every_module(sources)
    found = {
        f"{module}.md": page(module, names, sources)
        for modules in packages.values()
        for module, names in modules.items()
    }
    return {"index.md": index(packages, sources), **found}


def absent_from(site: Path, sources: Sources) -> list[str]:
    """Return the public names that pages built into `site` do not show.

    Modules have pages of their own, and names of other projects are documented there.
    """
    absent = []
    for modules in every_module(sources).values():
        for module, names in modules.items():
            built = site / "api" / f"{module}.html"
            shown = set(re.findall(r'\bid="([\w.]+)"', built.read_text(encoding="utf-8")))
            for name in names:
                found = sources.definition(module, name)
                if found.nodes and not shown & {f"{module}.{name}", f"{found.module}.{found.name}"}:
                    absent.append(f"{module}.{name}")
    return absent


def bare(sources: Sources) -> Iterator[str]:
    """Yield the public names, and the fields and methods of public classes, that have no docstring."""
    done: set[Definition] = set()
    for modules in every_module(sources).values():
        for module, names in modules.items():
            for name in names:
                found = sources.definition(module, name)
                if not found.nodes or found in done:
                    continue
                done.add(found)
                tree = sources.module(found.module)
                assert tree is not None
                node = found.nodes[-1]
                if not _has_docstring(node, tree.body):
                    yield f"{module}.{name}"
                if isinstance(node, ast.ClassDef):
                    members = (each for each in node.body if _is_public_member(each))
                    yield from (
                        f"{module}.{name}.{_name(each)}"
                        for each in members
                        if not _has_docstring(each, node.body)
                    )


def _summary(module: str, sources: Sources) -> str:
    text = ast.get_docstring(_tree(module, sources)) or ""
    sentence = " ".join(text.partition("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", sentence).replace("``", "`").rstrip(".")


def _tree(module: str, sources: Sources) -> ast.Module:
    tree = sources.module(module)
    assert tree is not None, module
    return tree


def _has_docstring(node: ast.stmt, body: list[ast.stmt]) -> bool:
    """Report whether a definition has a docstring, its own or as the string after it in `body`."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(node) is not None
    following = body[body.index(node) + 1 :][:1] if node in body else []
    return any(
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
        for each in following
    )


def _name(node: ast.stmt) -> str:
    match node:
        case (
            ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return name
    return ""


def _is_public_member(node: ast.stmt) -> bool:
    name = _name(node)
    return bool(name) and not name.startswith("_")


def main() -> int:
    """Write, check or look up; exit code 1 when a page differs, or a name is not shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    action.add_argument("--bare", action="store_true")
    action.add_argument("--shown", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    sources = Sources(sorted((ROOT / "packages").glob("*/src")))
    if options.bare:
        print(*bare(sources), sep="\n")
        return 0
    if options.shown:
        absent = absent_from(options.shown, sources)
        print(*(f"{name} is public and on no page" for name in absent), sep="\n", file=sys.stderr)
        return 1 if absent else 0
    expected = pages(sources)
    found = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    if options.write:
        PAGES.mkdir(exist_ok=True)
        for name in differing:
            path = PAGES / name
            path.write_text(expected[name], encoding="utf-8") if name in expected else path.unlink()
        return 0
    for name in differing:
        print(f"docs/api/{name} differs from the public names", file=sys.stderr)
    if differing:
        print("If these are meant, run: python tools/api_pages.py --write", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
