"""Check that no package's public names differ from those of its latest release under the version of that release.

`packages/*/tests/public_api.txt` in the working tree is compared with the file at the tag of the package's latest
release, such as `litz-ir-0.2.0`. If they differ, the version in the manifest has to be higher; if a name is gone, the
minor version has to be (the major one from 1.0 on), since before 1.0 the minor version counts as the major one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from release_tags import file_at, released, tag_of
from workspace import ROOT, Package, Version, padded, read_packages, spelled


@dataclass(frozen=True)
class Verdict:
    """The result for one package: a sentence, and whether the contract holds."""

    text: str
    holds: bool = True


def names_in(lines: str) -> set[str]:
    """Return the public names in the text of a `public_api.txt`: lines without indentation begin with one."""
    names = set()
    for line in lines.splitlines():
        if line and not line[0].isspace():
            words = line.removeprefix("class ")
            names.add(words.partition("(")[0].partition(":")[0].partition(" ")[0])
    return names


def compatible_from(version: Version) -> Version:
    """Return what a version has to share with the next one if names are removed: 0.2 of 0.2.1, 1 of 1.4.0."""
    return version[:2] if version[0] == 0 else version[:1]


def judge(root: Path, package: Package) -> Verdict:
    """Compare a package's public names with those at its latest release."""
    versions = released(root, package.name)
    now = spelled(package.version)
    if not versions:
        tag = tag_of(package.name, package.version)
        return Verdict(f"{package.name} {now}: no tag such as {tag}, so there is nothing to compare with")
    tag = tag_of(package.name, versions[-1])
    path = (package.path / "tests" / "public_api.txt").relative_to(root)
    before, after = file_at(root, tag, path.as_posix()), (root / path).read_text(encoding="utf-8")
    if before == after:
        return Verdict(f"{package.name} {now}: the public names are those of {tag}")
    if padded(package.version) <= padded(versions[-1]):
        return Verdict(
            f"{package.name} {now}: the public names differ from those of {tag}, so the version has to be higher",
            holds=False,
        )
    gone = sorted(names_in(before) - names_in(after))
    if gone and compatible_from(package.version) <= compatible_from(versions[-1]):
        part = "minor" if package.version[0] == 0 else "major"
        return Verdict(
            f"{package.name} {now}: {', '.join(gone)} of {tag} is gone, so the {part} version has to be higher",
            holds=False,
        )
    return Verdict(
        f"{package.name} {now}: the public names differ from those of {tag}, which is a lower version"
    )


def main(root: Path = ROOT) -> int:
    """Print the verdict on each package; exit code 1 if the contract is broken."""
    verdicts = [judge(root, package) for package in read_packages(root).values()]
    for verdict in verdicts:
        print(verdict.text, file=sys.stdout if verdict.holds else sys.stderr)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
