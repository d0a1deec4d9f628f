"""Compare every package's public names and signatures with a committed list, so that none changes unnoticed.

`--check` compares, `--write` rewrites `packages/*/tests/public_api.txt`. A package's public names are those of its
`__init__.py` and of its folders' `__init__.py`: `__all__` where there is one, else what is defined or imported there
without a leading underscore, but for the folder's own modules. A module beside the package's `__init__.py` is public if
it has `__all__`, and so is one further inside that its folder's `__all__` names. What has several names is written out
under that of the innermost folder or module, to which the others refer. Sources are read, never imported.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from signatures import Definition, Sources, bound_names

PACKAGES = Path(__file__).resolve().parent.parent / "packages"


def declared_all(tree: ast.Module) -> list[str] | None:
    """Return the names in a module's literal `__all__`, or None when it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in bound_names(node):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def public_names(package: Path) -> list[tuple[str, str]]:
    """Return the public names of the package whose import folder is `package`, sorted: each a module and a name."""
    found: set[tuple[str, str]] = set()
    for path in {*package.rglob("__init__.py"), *package.glob("*.py"), *_named_modules(package)}:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        names = declared_all(tree)
        if path.name == "__init__.py":
            module = ".".join(path.parent.relative_to(package.parent).parts)
            names = _bound_by(tree) if names is None else names
        else:
            module = ".".join(path.with_suffix("").relative_to(package.parent).parts)
        found.update((module, name) for name in names or () if name != "__version__")
    return sorted(found, key=".".join)


def public_lines(package: Path, sources: Sources) -> list[str]:
    """Return the lines of a package's list: its public names in order, each with its signature."""
    every = {pair: sources.definition(*pair) for pair in public_names(package)}
    found = {pair: each for pair, each in every.items() if each != Definition(".".join(pair), "")}
    owners: dict[Definition, str] = {}
    for (module, name), definition in sorted(found.items(), key=lambda each: -len(each[0][0])):
        if f"{definition.module}.".startswith(f"{module}."):
            owners.setdefault(definition, f"{module}.{name}")
    lines = []
    for pair, definition in found.items():
        public = ".".join(pair)
        owner = owners.setdefault(definition, public)
        lines += sources.lines(public, definition) if owner == public else [f"{public} = {owner}"]
    return lines


def _named_modules(package: Path) -> Iterator[Path]:
    """Yield the modules that the `__all__` of their folder names."""
    for front in package.rglob("__init__.py"):
        named = declared_all(ast.parse(front.read_text(encoding="utf-8"), filename=str(front))) or []
        yield from (path for path in (front.with_name(f"{name}.py") for name in named) if path.exists())


def _bound_by(tree: ast.Module) -> list[str]:
    """Return the names that a module's top-level statements bind and that do not start with an underscore."""
    nodes = [
        node for node in tree.body if not isinstance(node, ast.ImportFrom) or node.module != "__future__"
    ]
    return [name for node in nodes for name in bound_names(node) if not name.startswith("_")]


def main() -> int:
    """Check or rewrite the lists; exit code 1 when a list differs from the sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true")
    action.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sources = Sources(sorted(PACKAGES.glob("*/src")))
    differing = 0
    for folder in sorted(PACKAGES.iterdir()):
        if not (folder / "pyproject.toml").exists():
            continue
        (package,) = (path.parent for path in (folder / "src").glob("*/__init__.py"))
        lines = public_lines(package, sources)
        snapshot = folder / "tests" / "public_api.txt"
        if options.write:
            snapshot.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            continue
        known = snapshot.read_text(encoding="utf-8").splitlines() if snapshot.exists() else []
        if known != lines:
            differing += 1
            print(f"{folder.name}: public names differ from {snapshot.relative_to(PACKAGES.parent)}")
            for line in difflib.unified_diff(known, lines, "committed", "sources", n=0, lineterm=""):
                print(f"  {line}")
    if differing:
        print("If this is meant, run: python tools/public_api.py --write", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
