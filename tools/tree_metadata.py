"""Make a checkout look installed: `export PYTHONPATH=$(python tools/tree_metadata.py FOLDER)`.

Targets and the backend `"litz"` are found by entry point, which takes metadata of installed distributions. On a machine
without a network and without the packages' build backend, this writes that metadata to a folder and prints the search
path on which it stands in front of the packages' sources. A declared dependency that is missing there, but that pip or
setuptools carries a copy of, is linked from that copy. One that is not to be had is named on the standard error, and
the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).resolve().parent.parent / "packages"
CARRIERS = ("pip", "setuptools")


def manifests(packages: Path) -> dict[Path, dict[str, Any]]:
    """Return the `[project]` table of each package, by its folder."""
    found = {}
    for path in sorted(packages.glob("*/pyproject.toml")):
        found[path.parent] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return found


def write_metadata(project: dict[str, Any], folder: Path) -> None:
    """Write the `.dist-info` folder of a package: its name, version, requirements and entry points."""
    name, version = project["name"], project["version"]
    target = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    target.mkdir(parents=True, exist_ok=True)
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    head += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (target / "METADATA").write_text("\n".join(head) + "\n", encoding="utf-8")
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (target / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def dependencies(projects: Iterable[dict[str, Any]]) -> list[str]:
    """Return the modules that the packages need beyond one another, by the names of their distributions."""
    projects = list(projects)
    own = {project["name"] for project in projects}
    required = (re.split(r"[^\w.-]", each, maxsplit=1)[0] for p in projects for each in p["dependencies"])
    return sorted({name.replace("-", "_") for name in required if name not in own})


def link_missing(modules: Iterable[str], folder: Path) -> list[str]:
    """Link each module that cannot be imported from a copy that pip or setuptools carries; return the others."""
    absent = []
    for module in modules:
        link = folder / module
        if link.is_symlink():
            link.unlink()
        if importlib.util.find_spec(module) is not None:
            continue
        copies = [path for path in (_carried(carrier, module) for carrier in CARRIERS) if path]
        if copies:
            link.symlink_to(copies[0])
        else:
            absent.append(module)
    return absent


def _carried(carrier: str, module: str) -> Path | None:
    outer = importlib.util.find_spec(carrier)
    if outer is None or outer.origin is None:
        return None
    path = Path(outer.origin).parent / "_vendor" / module
    return path if path.is_dir() else None


def main() -> int:
    """Write the metadata and print the search path; exit code 1 when a dependency is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder to write to")
    folder: Path = parser.parse_args().folder.resolve()
    projects = manifests(PACKAGES)
    for project in projects.values():
        write_metadata(project, folder)
    absent = link_missing(dependencies(projects.values()), folder)
    print(os.pathsep.join(map(str, [folder, *(package / "src" for package in projects)])))
    for module in absent:
        print(f"{module} is not installed, and neither pip nor setuptools carries it", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
