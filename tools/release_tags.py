"""Release tags of packages, such as `litz-ir-0.2.0`, and the files of the repository at one of them."""

from __future__ import annotations

import io
import re
import subprocess
import zipfile
from pathlib import Path

from workspace import Package, Version, spelled, version_of


def git(root: Path, *arguments: str) -> bytes:
    """Return what a git command prints; raises `subprocess.CalledProcessError` if it fails."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


def is_repository(root: Path) -> bool:
    """Return whether `root` is the top folder of a git repository: a source archive is none."""
    try:
        top = git(root, "rev-parse", "--show-toplevel").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return False
    return Path(top).resolve() == root.resolve()


def tag_of(name: str, version: Version) -> str:
    """Return the tag of a release of the distribution `name`."""
    return f"{name}-{spelled(version)}"


def released(root: Path, name: str) -> list[Version]:
    """Return the versions of a distribution that have a tag, lowest first; none outside a repository."""
    if not is_repository(root):
        return []
    # The pattern of `litz` matches tags of `litz-ir` too: the version has to follow at once.
    tags = git(root, "tag", "--list", f"{name}-*").decode().split()
    matches = (re.fullmatch(rf"{re.escape(name)}-(\d+(?:\.\d+)*)", tag) for tag in tags)
    return sorted(version_of(match[1]) for match in matches if match)


def file_at(root: Path, tag: str, path: str) -> str:
    """Return the text of a file at a tag, empty if there was none; `path` is relative to the root."""
    if not git(root, "ls-tree", "--name-only", tag, "--", path):
        return ""
    return git(root, "show", f"{tag}:{path}").decode()


def export(root: Path, tag: str, target: Path) -> Path:
    """Write the whole tree at a tag to `target/tag`, unless it is there already; return that folder."""
    folder = target / tag
    if not folder.exists():
        with zipfile.ZipFile(io.BytesIO(git(root, "archive", "--format=zip", tag))) as archive:
            archive.extractall(folder)
    return folder


def package_at(root: Path, tag: str, folder: str, target: Path) -> Package:
    """Return the package of a folder as it was at a tag, below the exported tree."""
    return Package.read(export(root, tag, target) / "packages" / folder)
