"""Import every module of an installed package: `python tools/import_all.py litz_ir --absent torch triton`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path


def import_all(package: str) -> list[str]:
    """Import `package` and every module below it; returns their names in the order of import."""
    root = importlib.import_module(package)
    names = [package]
    for found in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
            names.append(found.name)
    return names


def main() -> int:
    """Import all that was asked for; exit code 1 if a package that must be absent can be imported."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--absent", nargs="*", default=[], help="packages that must not be installed at all")
    options = parser.parse_args()
    # Run as a script, the folder of this file leads sys.path: the package must come from the environment.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    names = import_all(options.package)
    present = [name for name in options.absent if importlib.util.find_spec(name) is not None]
    folder = Path(sys.modules[names[0]].__file__ or "").parent
    print(f"{options.package}: {len(names)} modules imported from {folder}")
    for name in present:
        print(f"{options.package}: {name} is installed, but nothing here may need it", file=sys.stderr)
    return 1 if present else 0


if __name__ == "__main__":
    raise SystemExit(main())
