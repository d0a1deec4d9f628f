"""Entries of the cache in ``torch.compiler.save_cache_artifacts()`` and ``load_cache_artifacts()``.

torch keeps a list of the entries that a process read or wrote, as bytes. litz's are on disk: the list refers to them,
and they are read when the program saves. Loading puts them into the cache folder as if this process had written them.
What is loaded is executed later, so a program loads only bytes that it trusts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from litz.cache.store import FOLDERS, Store
from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import CacheError

log = logging.getLogger(__name__)

TYPE = "litz"
"""Name of litz's entries among torch's."""

KEY, _NAME = re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z_]+\.?[a-z]*")
"""Forms of the keys of entries, and of the names of their files."""

_LENGTH = 8
"""Bytes of the length of the header."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry on disk that this process read or wrote."""

    folder: Path
    """Folder of the entries of its kind."""

    key: str
    """Key of the entry."""

    version: str
    """Checksum of its files: another process, or a later choice, may replace the entry."""


def record(folder: Path, key: str, manifest: bytes) -> None:
    """Add an entry that was read or written to torch's list."""
    entry = StoredEntry(folder, key, hashlib.sha256(manifest).hexdigest())
    CacheArtifactManager.record_artifact(TYPE, f"{folder.name}/{key}", entry)


def register(current: Callable[[], Config]) -> None:
    """Register litz's entries with torch, unless they are registered.

    ``current`` gives the options in force, which name the cache that entries are loaded into.
    """

    class LitzEntry(CacheArtifact):
        """An entry of litz's cache: on disk in the list of a process that used it, as bytes where it is loaded."""

        def __init__(self, key: str, content: bytes | StoredEntry) -> None:
            object.__setattr__(self, "key", key)
            object.__setattr__(self, "entry", content)

        entry: bytes | StoredEntry

        def __eq__(self, other: object) -> bool:
            return isinstance(other, LitzEntry) and (self.key, self.entry) == (other.key, other.entry)

        def __hash__(self) -> int:
            return hash((self.key, self.entry))

        @property
        def content(self) -> bytes:  # torch reads it when a program saves
            return self.entry if isinstance(self.entry, bytes) else _content_of(self.entry)

        @staticmethod
        def encode(content: bytes) -> bytes:
            return content

        @staticmethod
        def type() -> str:
            return TYPE

        def populate_cache(self) -> None:
            _put(self.key, self.content, current())

    try:
        CacheArtifactFactory.register(LitzEntry)
    except AssertionError:
        log.debug("entries of litz are registered with torch")


def _content_of(entry: StoredEntry) -> bytes:
    """Return an entry's files as bytes; nothing for an entry that was deleted or damaged since."""
    try:
        files = Store(entry.folder, layer=True).read(entry.key)
    except CacheError as error:
        log_once(str(error))
        files = None
    return b"" if files is None else encoded(files)


def encoded(files: Mapping[str, bytes]) -> bytes:
    """Return files as bytes: the length of a header, the header with names, sizes and checksums, the contents."""
    described = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items()]
    header = json.dumps(described).encode()
    return b"".join([len(header).to_bytes(_LENGTH, "little"), header, *files.values()])


def decoded(content: bytes) -> dict[str, bytes]:
    """Return the files in bytes; raise ``ValueError`` or ``TypeError`` for damaged ones."""
    start = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    files: dict[str, bytes] = {}
    for name, size, digest in json.loads(content[_LENGTH:start]):
        data = files[name] = content[start : start + size]
        start += size
        if not _NAME.fullmatch(name):
            raise ValueError(f"unknown file {name!r}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"the checksum of {name} differs")
    return files


def _put(key: str, content: bytes, config: Config) -> None:
    """Write an entry to the cache that ``config`` names, if it is whole and the cache is on."""
    kind, _, name = key.partition("/")
    if not content:
        return  # it was deleted before the program saved
    if not config.uses_disk:
        log_once("litz: the cache is off: entries from load_cache_artifacts are not used", logging.INFO)
        return
    try:
        if kind not in FOLDERS or not KEY.fullmatch(name):
            raise ValueError("it has no key of litz's")
        Store(config.cache_root() / kind).write(name, decoded(content))
    except (ValueError, TypeError) as error:
        log.warning("an entry of load_cache_artifacts is damaged and not used: %s: %s", key, error)
    except CacheError as error:
        log_once(str(error))
