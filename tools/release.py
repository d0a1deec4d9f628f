"""Checks of a release: what has to hold in the tree before packages are built, and what has to be in the archives.

`nox -s release` runs them, builds and tags. Nothing here uploads.
"""

from __future__ import annotations

import ast
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from release_tags import git, is_repository, released, tag_of
from version_contract import judge
from workspace import Package, spelled

_SECTION = re.compile(r"^## \[(?P<version>[^\]]+)\](?P<date> - \d{4}-\d{2}-\d{2})?\s*$", re.MULTILINE)


def selected(packages: Mapping[str, Package], names: Iterable[str]) -> list[str]:
    """Return the folders of some distributions in publish order, of all without names; raises `ValueError`."""
    wanted = set(names)
    found = [folder for folder, package in packages.items() if not wanted or package.name in wanted]
    if unknown := wanted - {packages[folder].name for folder in found}:
        known = ", ".join(package.name for package in packages.values())
        raise ValueError(f"no package is called {', '.join(sorted(unknown))}; there are {known}")
    return found


def uncommitted(root: Path) -> list[str]:
    """Return the paths that differ from the commit, as git prints them; a release is made of a commit."""
    if not is_repository(root):
        return [f"{root} is not the top folder of a git repository"]
    return git(root, "status", "--porcelain").decode().splitlines()


def changelog_sections(text: str) -> dict[str, tuple[bool, str]]:
    """Return the sections of a changelog by version, `Unreleased` among them: whether it is dated, and its text."""
    matches = list(_SECTION.finditer(text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    return {
        match["version"]: (match["date"] is not None, text[match.end() : end].strip())
        for match, end in zip(matches, ends)
    }


def module_version(package: Package) -> str:
    """Return the literal `__version__` of a package's sources, empty without one."""
    source = (package.path / "src" / package.module / "__init__.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__version__")], value=ast.Constant(value=str(version))):
                return version
    return ""


def problems(root: Path, package: Package) -> list[str]:
    """Return what forbids to release a package from the tree as it is, as sentences."""
    version, name = spelled(package.version), package.name
    found = []
    sections = changelog_sections((package.path / "CHANGELOG.md").read_text(encoding="utf-8"))
    if version not in sections:
        found.append(f"{name}: CHANGELOG.md has no section [{version}]")
    elif not sections[version][0]:
        found.append(f"{name}: the section [{version}] of CHANGELOG.md has no date")
    if sections.get("Unreleased", (False, ""))[1]:
        found.append(f"{name}: CHANGELOG.md has unreleased changes; they belong to a version")
    if module_version(package) != version:
        found.append(f"{name}: __version__ is {module_version(package)!r}, the manifest says {version}")
    licence = package.path / "LICENSE"
    if not licence.exists() or licence.read_bytes() != (root / "LICENSE").read_bytes():
        found.append(f"{name}: LICENSE is not that of the repository")
    if package.version in released(root, name):
        found.append(f"{name}: the tag {tag_of(name, package.version)} exists already")
    verdict = judge(root, package)
    if not verdict.holds:
        found.append(verdict.text)
    return found


def archives(folder: Path, package: Package) -> list[Path]:
    """Return the wheel and the source distribution of a package in a folder, those that exist."""
    stem = f"{package.module}-{spelled(package.version)}"
    return [
        path for path in (folder / f"{stem}-py3-none-any.whl", folder / f"{stem}.tar.gz") if path.exists()
    ]


def absent_from(archive: Path, package: Package) -> list[str]:
    """Return the files that a wheel or a source distribution lacks: licence, README, marker of types, changelog.

    A wheel has the README as the text of its metadata, which an index shows.
    """
    stem = f"{package.module}-{spelled(package.version)}"
    readme = (package.path / "README.md").read_text(encoding="utf-8").strip()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = set(wheel.namelist())
            metadata = wheel.read(f"{stem}.dist-info/METADATA").decode()
        wanted = [f"{stem}.dist-info/licenses/LICENSE", f"{package.module}/py.typed"]
        described = [] if readme in metadata.replace("\r\n", "\n") else ["README.md as the description"]
        stated = [] if "\nLicense-Expression: " in metadata else ["License-Expression"]
        return [name for name in wanted if name not in names] + described + stated
    with tarfile.open(archive) as source:
        names = set(source.getnames())
    wanted = ["LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", f"src/{package.module}/py.typed"]
    return [name for name in wanted if f"{stem}/{name}" not in names]
