"""Containers of saved artifacts: a folder of files, or one file with the same files in it, each with a checksum.

Both have a manifest with the version of the format, the packages that wrote it, and a SHA-256 sum of every other
file. Loading executes what it reads, so a container is trusted as the cache is: it must belong to this user or to
root, and nobody else may write to it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from litz.cache.store import created, distrust, trusted_content
from litz_ir.errors import ArtifactError

Format = Literal["binary", "unpacked"]
"""Forms of a container: one file, or a folder."""

MANIFEST = "manifest.json"
"""Name of the file with the version and the checksums."""

_NAME, _VERSION = "litz artifact", 1
"""Name and version of the format; a reader refuses other versions."""

_AGAIN = "compile the graph again, and save the result"


@dataclass(slots=True, weakref_slot=True)
class Contents:
    """The files of a container, whose checksums were compared."""

    files: Mapping[str, bytes]
    """Content of each file but the manifest, by name."""

    folder: Path | None = None
    """Folder that contains the files; ``None`` where they are in one file, or in memory."""

    extracted: Path | None = None
    """Temporary folder with files of a container that is no folder; deleted with this object."""

    def path(self, name: str) -> Path:
        """Return a path under which a file can be loaded."""
        if self.folder is not None:
            return self.folder / name
        if self.extracted is None:
            self.extracted = Path(tempfile.mkdtemp(prefix="litz-"))
            weakref.finalize(self, shutil.rmtree, self.extracted, ignore_errors=True)
        path = self.extracted / name
        path.write_bytes(self.files[name])
        return path


def checked_format(format: str) -> Format:
    """Return a format; raise :class:`ArtifactError` for an unknown one."""
    for each in get_args(Format):
        if format == each:
            found: Format = each
            return found
    raise ArtifactError(f"unknown format {format!r}", hint=f"formats are {' and '.join(get_args(Format))}")


def write(path: Path, format: Format, files: Mapping[str, bytes], writer: Sequence[str]) -> None:
    """Write a container, in place of one at the same path; ``writer`` names packages with their versions.

    It appears complete: it is written under another name and renamed. Raises :class:`ArtifactError` where ``path``
    is something else, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if format == "binary":
            if path.is_dir():
                raise ArtifactError(f"{path} is a folder", hint="format='unpacked' writes folders")
            _write_file(path, to_bytes(files, writer))
        else:
            _write_folder(path, {**files, MANIFEST: _manifest(files, writer)})
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error


def read(path: Path, format: Format, reader: Sequence[str]) -> Contents:
    """Read a container that packages of these versions wrote; raise :class:`ArtifactError` for another one, for a
    damaged one, and for one that is not trusted."""
    try:
        if format == "binary":
            if path.is_dir():
                raise ArtifactError(f"{path} is a folder", hint="format='unpacked' reads folders")
            return Contents(from_bytes(_trusted(path), reader, str(path)))
        if not path.is_dir():
            raise ArtifactError(f"{path} is not a folder", hint="format='binary' reads files")
        _trust(path)
        manifest = _parsed(_trusted(path / MANIFEST), reader, str(path))
        files = {name: _trusted(path / name) for name in manifest}
        return Contents(_checked(manifest, files, str(path)), path)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error}") from error


def to_bytes(files: Mapping[str, bytes], writer: Sequence[str]) -> bytes:
    """Return a container as bytes: an uncompressed ZIP archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {MANIFEST: _manifest(files, writer), **files}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def from_bytes(data: bytes, reader: Sequence[str], where: str) -> Mapping[str, bytes]:
    """Return the files of a container in memory, which the caller trusts; raise :class:`ArtifactError`.

    ``where`` names it in messages.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            manifest = _parsed(archive.read(MANIFEST), reader, where)
            return _checked(manifest, {name: archive.read(name) for name in manifest}, where)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError) as error:
        raise ArtifactError(
            f"{where} is not a saved artifact, or is damaged: {error}", hint=_AGAIN
        ) from error


def _manifest(files: Mapping[str, bytes], writer: Sequence[str]) -> bytes:
    """Return the manifest of files."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = {"format": _NAME, "version": _VERSION, "written_by": list(writer), "files": sums}
    return json.dumps(manifest, indent=1).encode()


def _parsed(text: bytes, reader: Sequence[str], where: str) -> Mapping[str, str]:
    """Return the checksums of a manifest; raise :class:`ArtifactError` for another format or other packages."""
    try:
        manifest = json.loads(text)
        named = (manifest["format"], manifest["version"])
        written_by, files = list(manifest["written_by"]), dict(manifest["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{where} has no readable manifest: {error}", hint=_AGAIN) from error
    if named != (_NAME, _VERSION):
        raise ArtifactError(f"{where} has the format {named[0]!r} {named[1]!r}", hint=_AGAIN)
    if written_by != list(reader):
        changed = [f"{old} (now {new})" for old, new in zip(written_by, reader) if old != new]
        others = ", ".join(changed) or "other packages"
        raise ArtifactError(f"{where} was written by {others}", hint=_AGAIN)
    if not all(isinstance(name, str) and Path(name).name == name for name in files):
        raise ArtifactError(f"{where} names a file outside of itself", hint=_AGAIN)
    return files


def _checked(manifest: Mapping[str, str], files: Mapping[str, bytes], where: str) -> Mapping[str, bytes]:
    """Return files; raise :class:`ArtifactError` where a checksum differs."""
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != manifest[name]:
            raise ArtifactError(f"{where} is damaged: the checksum of {name} differs", hint=_AGAIN)
    return files


def _trusted(path: Path) -> bytes:
    """Return the content of a file; raise :class:`ArtifactError` where others may have written it."""
    try:
        return trusted_content(path)
    except ValueError as error:
        hint = f"chmod go-w {path}, or load a copy that belongs to this user"
        raise ArtifactError(f"{path} is not loaded: {error}", hint=hint) from error


def _trust(folder: Path) -> None:
    """Raise :class:`ArtifactError` for a folder in which others may replace files."""
    why = distrust(folder.stat())
    if why:
        hint = f"chmod go-w {folder}, or load a copy that belongs to this user"
        raise ArtifactError(f"{folder} is not loaded: {why}", hint=hint)


def _write_file(path: Path, data: bytes) -> None:
    """Write a file under another name, and rename it."""
    unfinished = path.parent / f".writing-{secrets.token_hex(8)}"
    try:
        with open(unfinished, "xb", opener=created) as file:
            file.write(data)
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder under another name, and rename it."""
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ArtifactError(f"{path} exists and is not a saved artifact", hint="choose another path")
    unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=".writing-"))
    try:
        for name, data in files.items():
            with open(unfinished / name, "xb", opener=created) as file:
                file.write(data)
        if path.exists():
            shutil.rmtree(path)
        os.rename(unfinished, path)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
