"""A temporary git repository with two fake packages: `fake-low`, and `fake-high` that requires it."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
MANIFEST = """
[project]
name = "fake-{folder}"
version = "{version}"
dependencies = [{dependencies}]

[project.optional-dependencies]
test = ["pytest>=8.0"]
"""
CHANGELOG = """# Changelog of fake-{folder}

## [Unreleased]

## [{version}] - 2026-11-26

### Added

- First version.
"""


def run_git(root: Path, *arguments: str) -> None:
    """Run git, and fail if it fails."""
    subprocess.run(["git", *IDENTITY, *arguments], cwd=root, check=True, capture_output=True)


def write_package(root: Path, folder: str, version: str, *dependencies: str, names: str = "") -> Path:
    """Write a package of a version; `names` is the text of its list of public names."""
    path = root / "packages" / folder
    source = path / "src" / f"fake_{folder}"
    source.mkdir(parents=True, exist_ok=True)
    (path / "tests").mkdir(exist_ok=True)
    (path / "tests" / "public_api.txt").write_text(names)
    (source / "__init__.py").write_text(f'"""A fake."""\n\n__version__ = "{version}"\n')
    (source / "py.typed").write_text("")
    listed = ", ".join(f'"{each}"' for each in dependencies)
    (path / "pyproject.toml").write_text(MANIFEST.format(folder=folder, version=version, dependencies=listed))
    (path / "CHANGELOG.md").write_text(CHANGELOG.format(folder=folder, version=version))
    (path / "README.md").write_text(f"# fake-{folder}\n")
    (path / "LICENSE").write_text("a licence\n")
    return path


def repository(root: Path) -> Path:
    """Make a repository whose packages have the version 0.2.0, committed, without tags."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "LICENSE").write_text("a licence\n")
    write_package(
        root, "low", "0.2.0", "numpy>=1.26", names="fake_low.a() -> int\nclass fake_low.B\n    x: int\n"
    )
    write_package(root, "high", "0.2.0", "fake-low>=0.2,<0.3", "numpy>=1.25")
    run_git(root, "init", "--quiet")
    commit(root, "first")
    return root


def commit(root: Path, message: str) -> None:
    """Commit all that there is."""
    run_git(root, "add", "--all")
    run_git(root, "commit", "--quiet", "--message", message)


def tag(root: Path, name: str) -> None:
    """Make an annotated tag."""
    run_git(root, "tag", "--annotate", name, "--message", name)
