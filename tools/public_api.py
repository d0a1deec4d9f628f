"""Compare every package's public names with a committed list, so that no name comes or goes unnoticed.

`--check` compares, `--write` rewrites `packages/*/tests/public_api.txt`. A package's
public names are those of its `__init__.py` and of its folders' `__init__.py`: `__all__` where there is one,
else what is defined or imported there without a leading underscore. Sources are read, never imported.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "packages"


def declared_all(tree: ast.Module) -> list[str] | None:
    """Return the names in a module's literal `__all__`, or None when it has none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def bound_names(tree: ast.Module) -> list[str]:
    """Return the names that a module's top-level statements bind and that do not start with an underscore."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                names += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


def public_names(package: Path) -> list[str]:
    """Return the sorted dotted public names of the package whose import folder is `package`."""
    found: set[str] = set()
    for init in package.rglob("__init__.py"):
        module = ".".join(init.parent.relative_to(package.parent).parts)
        tree = ast.parse(init.read_text(encoding="utf-8"), filename=str(init))
        declared = declared_all(tree)
        names = bound_names(tree) if declared is None else declared
        found.update(f"{module}.{name}" for name in names if name != "__version__")
    return sorted(found)


def main() -> int:
    """Check or rewrite the lists; exit code 1 when a list differs from the sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true")
    action.add_argument("--write", action="store_true")
    options = parser.parse_args()
    differing = 0
    for folder in sorted(PACKAGES.iterdir()):
        if not (folder / "pyproject.toml").exists():
            continue
        (package,) = (path.parent for path in (folder / "src").glob("*/__init__.py"))
        names = public_names(package)
        snapshot = folder / "tests" / "public_api.txt"
        if options.write:
            snapshot.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
            continue
        known = snapshot.read_text(encoding="utf-8").splitlines() if snapshot.exists() else []
        if known != names:
            differing += 1
            print(f"{folder.name}: public names differ from {snapshot.relative_to(PACKAGES.parent)}")
            for line in difflib.unified_diff(known, names, "committed", "sources", n=0, lineterm=""):
                print(f"  {line}")
    if differing:
        print("If this is meant, run: python tools/public_api.py --write", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
