"""Combinations of releases that the bounds of siblings allow, and that nothing else tests.

For each package there is one with the oldest release that is allowed of each sibling that it needs, and one with the
oldest release of the package itself that allows its siblings of the working tree. All other packages are those of the
working tree. Where there is no release yet, the working tree stands in for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from release_tags import package_at, released, tag_of
from workspace import Package, padded, required, spelled


@dataclass(frozen=True)
class Combination:
    """Packages to install in one environment, by folder and lowest layer first, with the extras of each.

    The tests of `tested` run from the folder `tree`: those of a release need the tools of their time. `text` names what
    is not of the working tree.
    """

    tested: str
    tree: Path
    packages: Mapping[str, Package]
    needed: Mapping[str, frozenset[str]]
    text: str


@dataclass(frozen=True)
class Combinations:
    """The combinations for one package, that of the working tree first, and sentences on releases that do not exist."""

    found: tuple[Combination, ...]
    missing: tuple[str, ...]


def combinations(root: Path, packages: Mapping[str, Package], tested: str, target: Path) -> Combinations:
    """Return the combinations for the tests of a package; trees of releases are written below `target`."""
    needed = required(packages, tested, ["test"])
    found = [Combination(tested, root, packages, needed, "the working tree")]
    missing = []
    for folder in needed:
        package = oldest_release(root, packages, needed, folder, target)
        if package is None:
            missing.append(_absence(root, packages, needed, folder))
            continue
        with_release = {**packages, folder: package}
        tree = package.path.parent.parent if folder == tested else root
        text = f"{tag_of(package.name, package.version)} with the rest of the working tree"
        extras = required(with_release, tested, ["test"])
        found.append(Combination(tested, tree, with_release, extras, text))
    return Combinations(tuple(found), tuple(missing))


def oldest_release(
    root: Path,
    packages: Mapping[str, Package],
    needed: Mapping[str, frozenset[str]],
    folder: str,
    target: Path,
) -> Package | None:
    """Return the oldest release of a package that the packages in use allow, and that allows them; None without one."""
    name = packages[folder].name
    used = {packages[each].name: packages[each].version for each in needed}
    bounds = [
        each
        for user, extras in needed.items()
        for each in packages[user].requirements(extras)
        if each.name == name
    ]
    for version in released(root, name):
        if all(bound.allows(version) for bound in bounds):
            package = package_at(root, tag_of(name, version), folder, target)
            own = [each for each in package.requirements(package.extras) if each.name in used]
            if all(bound.allows(used[bound.name]) for bound in own):
                return package
    return None


def _absence(
    root: Path, packages: Mapping[str, Package], needed: Mapping[str, frozenset[str]], folder: str
) -> str:
    """Return a sentence on the release that is missing."""
    package = packages[folder]
    if tags := [tag_of(package.name, each) for each in released(root, package.name)]:
        return f"no tag of {package.name} is allowed ({', '.join(tags)}): the working tree stands in for it"
    users = (packages[user].requirements(extras) for user, extras in needed.items())
    lowest = [each.lowest for every in users for each in every if each.name == package.name]
    tag = f"{package.name}-{spelled(padded(max(lowest, default=package.version)))}"
    return f"no tag {tag}: the working tree stands in for it"
