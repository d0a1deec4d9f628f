"""The packages of the repository as their manifests describe them, lowest layer first: requirements and siblings.

Only the standard library is needed, so that nox, the lint and a bare checkout can use it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Version = tuple[int, ...]
"""A version as numbers: 0.2.0 is (0, 2, 0)."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(\[(?P<extras>[^\]]*)\])?\s*(>=(?P<lowest>[\d.]+))?\s*(,\s*<(?P<above>[\d.]+))?"
)


def version_of(text: str) -> Version:
    """Return a version such as `0.2.0` as numbers; raises `ValueError` for any other spelling."""
    return tuple(int(part) for part in text.split("."))


def spelled(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


@dataclass(frozen=True)
class Requirement:
    """A requirement such as `litz-ir[sympy]>=0.2,<0.3`: a distribution, its extras and its bounds, () where absent."""

    name: str
    extras: tuple[str, ...]
    lowest: Version
    above: Version

    @classmethod
    def of(cls, text: str) -> Requirement:
        """Return a requirement as read; raises `ValueError` for forms that no manifest here uses."""
        match = _REQUIREMENT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"the requirement {text!r} is not of the form name[extras]>=lowest,<above")
        extras = tuple(each.strip() for each in (match["extras"] or "").split(",") if each.strip())
        lowest, above = (version_of(match[key]) if match[key] else () for key in ("lowest", "above"))
        return cls(match["name"], extras, lowest, above)

    def allows(self, version: Version) -> bool:
        """Return whether a version is within the bounds."""
        return padded(version) >= padded(self.lowest) and (
            not self.above or padded(version) < padded(self.above)
        )


def padded(version: Version) -> Version:
    """Return a version with at least three numbers, so that 0.2 and 0.2.0 compare equal."""
    return version + (0,) * (3 - len(version))


@dataclass(frozen=True)
class Package:
    """A package as its manifest describes it; `path` is the folder that holds the manifest."""

    path: Path
    name: str
    version: Version
    dependencies: tuple[Requirement, ...]
    extras: Mapping[str, tuple[Requirement, ...]]

    @classmethod
    def read(cls, path: Path) -> Package:
        """Read the manifest in a folder."""
        project = tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = {
            extra: tuple(map(Requirement.of, required))
            for extra, required in project.get("optional-dependencies", {}).items()
        }
        dependencies = tuple(map(Requirement.of, project.get("dependencies", ())))
        return cls(path, project["name"], version_of(project["version"]), dependencies, extras)

    @property
    def module(self) -> str:
        """Return the name to import."""
        return self.name.replace("-", "_")

    def requirements(self, extras: Iterable[str] = ()) -> tuple[Requirement, ...]:
        """Return the dependencies and those of some extras."""
        return (*self.dependencies, *(each for extra in extras for each in self.extras[extra]))


def read_packages(root: Path = ROOT) -> dict[str, Package]:
    """Return the packages below `root/packages` by folder, each after all siblings that it or an extra requires."""
    paths = sorted(path.parent for path in (root / "packages").glob("*/pyproject.toml"))
    waiting = {path.name: Package.read(path) for path in paths}
    ordered: dict[str, Package] = {}
    while waiting:
        names = {package.name for package in waiting.values()}
        ready = [
            folder
            for folder, package in waiting.items()
            if not any(each.name in names for each in package.requirements(package.extras))
        ]
        if not ready:
            raise ValueError(f"the packages {', '.join(sorted(names))} require one another")
        ordered[ready[0]] = waiting.pop(ready[0])
    return ordered


def required(
    packages: Mapping[str, Package], folder: str, extras: Iterable[str] = ()
) -> dict[str, frozenset[str]]:
    """Return a package and every sibling that it needs, in the order of `packages`, each with the extras needed."""
    by_name = {package.name: each for each, package in packages.items()}
    needed = {folder: frozenset(extras)}
    waiting = [folder]
    while waiting:
        each = waiting.pop()
        for requirement in packages[each].requirements(needed[each]):
            sibling = by_name.get(requirement.name)
            if sibling is None or sibling == each:
                continue
            known = needed.get(sibling)
            wanted = (known or frozenset()) | frozenset(requirement.extras)
            if wanted != known:
                needed[sibling] = wanted
                waiting.append(sibling)
    return {each: needed[each] for each in packages if each in needed}


def lowest_pins(packages: Mapping[str, Package], needed: Mapping[str, Iterable[str]]) -> list[str]:
    """Return pins of the lowest versions of other projects that satisfy some packages with extras, sorted by name."""
    siblings = {package.name for package in packages.values()}
    lowest: dict[str, Version] = {}
    for folder, extras in needed.items():
        for requirement in packages[folder].requirements(extras):
            if requirement.name not in siblings:
                lowest[requirement.name] = max(lowest.get(requirement.name, ()), requirement.lowest)
    return [f"{name}=={spelled(version)}" if version else name for name, version in sorted(lowest.items())]
