"""Archives of deployed models: uncompressed ZIP files whose members are aligned, mapped into memory, and checked.

Loading executes what it reads. A file is trusted as entries of the cache are: it must belong to this user or to root,
and nobody else may write to it; and every member has a SHA-256 sum in the manifest.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import os
import secrets
import stat
import struct
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from litz.cache.store import created, distrust
from litz_ir.errors import ArtifactError

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
"""Names of the members that have no checksum: the first of the archive, and its signature."""

ALIGNMENT = 64
"""Data of members starts at multiples of this many bytes, so that it can be used where it is mapped."""

AGAIN = "compile the program again by litz.aot_compile, or copy the file again"
"""Hint for files that are damaged."""

_PADDING = 0xD935
"""Identifier of the extra field that pads local headers, the one that Android's tools use."""

_LOCAL, _LOCAL_MAGIC = struct.Struct("<4s5H3L2H"), b"PK\x03\x04"
"""Local header of a member, without its name and extra field, and its first bytes."""

_ZIP64_EXTRA = 20
"""Bytes that :mod:`zipfile` adds to the local header of a member that may have 4 GiB or more."""

_STORED_FLAGS = 0x800
"""The only flag that members may have: the name is UTF-8."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a member."""

    data: bytes | memoryview
    """Its bytes, which may be those of a tensor: nothing is copied before it is written."""

    def __len__(self) -> int:
        return len(self.data)


Member = Sequence[Chunk]
"""The content of a member, chunk by chunk."""


def member_size(member: Member) -> int:
    """Return the number of bytes of a member."""
    return sum(map(len, member))


def checksum(member: Member) -> str:
    """Return the SHA-256 sum of a member, as hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in member:
        digest.update(chunk.data)
    return digest.hexdigest()


def write_archive(path: Path, members: Mapping[str, Member]) -> None:
    """Write an archive, in place of a file at the same path, in one step; raise ``OSError``."""
    unfinished = path.parent / f".writing-{secrets.token_hex(8)}"
    try:
        with open(unfinished, "xb", opener=created) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, member in members.items():
                    _write_member(archive, file, name, member)
        os.replace(unfinished, path)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _write_member(archive: zipfile.ZipFile, file: IO[bytes], name: str, member: Member) -> None:
    """Write a member whose data is aligned."""
    info = zipfile.ZipInfo(name)
    size = member_size(member)
    large = size > 1 << 30
    before = file.tell() + _LOCAL.size + len(name.encode()) + (_ZIP64_EXTRA if large else 0)
    padding = -(before + 4) % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
    with archive.open(info, "w", force_zip64=large) as target:
        for chunk in member:
            target.write(chunk.data)


@dataclass(slots=True)
class Archive:
    """An archive that is mapped into memory. Writes to the mapping change no file and no other process's memory."""

    where: str
    """Name of the archive in messages."""

    memory: mmap.mmap
    """The whole file, copied on write."""

    spans: Mapping[str, tuple[int, int]]
    """First byte of each member's data and its number of bytes, by name."""

    def content(self, name: str) -> memoryview:
        """Return the content of a member, in the mapping; raise :class:`ArtifactError` where it is missing."""
        if name not in self.spans:
            raise ArtifactError(f"{self.where} has no {name}", hint=AGAIN)
        offset, size = self.spans[name]
        return memoryview(self.memory)[offset : offset + size]

    def verify(self, name: str, sha256: str, size: int) -> None:
        """Raise :class:`ArtifactError` where a member has another checksum or size."""
        content = self.content(name)
        if len(content) != size or not hmac.compare_digest(hashlib.sha256(content).hexdigest(), sha256):
            raise ArtifactError(f"{self.where} is damaged: the checksum of {name} differs", hint=AGAIN)


def open_archive(path: Path) -> Archive:
    """Map an archive into memory.

    Raises :class:`ArtifactError` for a file that cannot be read, is not trusted, or is no such archive.
    """
    memory = mapped(path)
    try:
        with zipfile.ZipFile(_MappedFile(memory)) as archive:
            infos, comment = archive.infolist(), archive.comment
        return Archive(str(path), memory, _spans(infos, comment, memory))
    except (
        zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError, struct.error
    ) as error:  # fmt: skip
        raise ArtifactError(f"{path} is no litz model, or is damaged: {error}", hint=AGAIN) from error


def mapped(path: Path) -> mmap.mmap:
    """Map a file that is trusted into memory, copied on write; raise :class:`ArtifactError` for another one."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise ArtifactError(f"{path} is not a file")
            why = distrust(state)
            if why:
                hint = f"chmod go-w {path}, or load a copy that belongs to this user"
                raise ArtifactError(f"{path} is not loaded: {why}", hint=hint)
            if not state.st_size:
                raise ArtifactError(f"{path} is empty", hint=AGAIN)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error}") from error


class _MappedFile:
    """A mapping as the file that :mod:`zipfile` reads, which closes nothing."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._at = 0

    def read(self, count: int = -1) -> bytes:
        end = len(self._memory) if count < 0 else min(self._at + count, len(self._memory))
        start, self._at = self._at, max(self._at, end)
        return self._memory[start:end]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._memory)}[whence]
        if at < 0:
            raise ValueError("negative position")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True


def _spans(
    infos: Sequence[zipfile.ZipInfo], comment: bytes, memory: mmap.mmap
) -> Mapping[str, tuple[int, int]]:
    """Return the places of members; raise ``ValueError`` for an archive that :func:`write_archive` did not write."""
    if not infos or infos[0].filename != MANIFEST or infos[0].header_offset or comment:
        raise ValueError(f"{MANIFEST} is not its first member")
    found: dict[str, tuple[int, int]] = {}
    end = 0
    for info in sorted(infos, key=lambda each: each.header_offset):
        name = info.filename
        if name in found:
            raise ValueError(f"it has two members {name!r}")
        if not name.isprintable() or "/" in name or "\\" in name or name.startswith("."):
            raise ValueError(f"a member is named {name!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ~_STORED_FLAGS:
            raise ValueError(f"{name} is compressed or encrypted")
        if info.header_offset < end:
            raise ValueError(f"{name} overlaps another member")
        named = info.header_offset + _LOCAL.size
        magic, *_, name_size, extra_size = _LOCAL.unpack(memory[info.header_offset : named])
        start = named + name_size + extra_size
        end = start + info.file_size
        if magic != _LOCAL_MAGIC or memory[named : named + name_size] != name.encode() or end > len(memory):
            raise ValueError(f"the header of {name} is damaged")
        if start % ALIGNMENT or info.compress_size != info.file_size:
            raise ValueError(f"{name} is not aligned")
        found[name] = (start, info.file_size)
    return found
