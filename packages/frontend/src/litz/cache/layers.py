"""The tiers of one kind of entries: the cache folder, read-only layers below it, and the remote cache.

A lookup asks them in this order. What a layer has is used in place; what the remote cache has is verified, written to
the cache folder, and used from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol

from litz.cache.counts import LAYER, LOCAL, NOWHERE, REMOTE, count
from litz.cache.mega_cache import record
from litz.cache.store import FOLDERS, Entry, Store, distrust, require_trusted_root
from litz.environment.variables import quota_bytes
from litz.notices import log_once
from litz.settings import Config
from litz_ir.errors import CacheError

_QUOTA, _REMOTE = "litz.cache.quota", "litz.cache.remote.signed"
"""Modules of the quota and of the remote cache; loaded where the options ask for them."""


class Source(Protocol):
    """The remote cache, as the tiers use it; neither method raises or waits for long."""

    def fetch(self, kind: str, key: str) -> Mapping[str, bytes] | None:
        """Return the verified files of an entry; ``None`` where there is none, or the source does not answer."""

    def offer(self, kind: str, key: str, files: Mapping[str, bytes]) -> None:
        """Send an entry, later."""


class Keeper(Protocol):
    """Keeper of the quota of a cache folder."""

    def added(self, size: int) -> None:
        """Note bytes that were written to the folder."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Entries of one kind, in all tiers of the cache."""

    local: Store
    """The cache folder's entries; all that is written is written here."""

    layers: tuple[Store, ...] = ()
    """Folders that are only read, in the order in which they are asked."""

    remote: Source | None = None
    """The remote cache; ``None`` without one."""

    keeper: Keeper | None = None
    """Keeper of the quota; ``None`` without one."""

    hidden: set[str] = field(default_factory=set)
    """Keys of entries that were dropped since they cannot be used: they are read from the cache folder alone."""

    @property
    def folder(self) -> Path:
        """Folder of the entries that are written."""
        return self.local.folder

    @property
    def writable(self) -> bool:
        """True where entries can be written."""
        return self.local.writable

    def read(self, key: str) -> Mapping[str, bytes] | None:
        """Return the files of an entry; ``None`` where no tier has it undamaged."""
        found = self.find(key)
        return None if found is None else found.files

    def find(self, key: str) -> Entry | None:
        """Return an entry of the first tier that has it undamaged, or ``None``."""
        kind = self.folder.name
        below = () if key in self.hidden else self.layers
        for tier, store in ((LOCAL, self.local), *((LAYER, each) for each in below)):
            start = time.perf_counter()
            found = store.find(key)
            spent = time.perf_counter() - start
            if found is not None:
                count(kind, tier, hits=1, bytes=_size(found.files), seconds=spent)
                return found
            count(kind, tier, misses=1, seconds=spent)
        found = self._fetched(kind, key)
        if found is None:
            count(kind, NOWHERE, misses=1)
        return found

    def write(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry to the cache folder, and offer it to the remote cache; return False where that cannot be
        written."""
        written = self._written(key, files)
        if written and self.remote is not None:
            self.remote.offer(self.folder.name, key, files)
        return written

    def drop(self, key: str) -> None:
        """Delete an entry of the cache folder; those of other tiers stay, but are not used again."""
        self.hidden.add(key)
        self.local.drop(key)

    def _fetched(self, kind: str, key: str) -> Entry | None:
        """Return an entry of the remote cache, once it is in the cache folder; ``None`` where that is not possible."""
        if self.remote is None or not self.writable or key in self.hidden:
            return None
        start = time.perf_counter()
        files = self.remote.fetch(kind, key)
        spent = time.perf_counter() - start
        if files is None or not self._written(key, files):
            count(kind, REMOTE, misses=1, seconds=spent)
            return None
        count(kind, REMOTE, hits=1, bytes=_size(files), seconds=spent)
        return Entry(self.folder / key, files)

    def _written(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry to the cache folder and count it; return False where it cannot be written."""
        written = self.local.write(key, files)
        if written:
            size = _size(files)
            count(self.folder.name, LOCAL, writes=1, bytes=size)
            if self.keeper is not None:
                self.keeper.added(size)
        return written


def opened_tiers(config: Config) -> tuple[Tiers, ...]:
    """Return the tiers of each kind of entries that ``config`` names.

    A layer that cannot be used is a log line, and so is a cache folder that cannot be used, if there are layers: these
    are read all the same. Raises :class:`CacheError` for such a cache folder without layers.
    """
    root = config.cache_root()
    layers = []
    for each in _trusted_layers(config.layer_roots()):
        try:
            layers.append([Store(each / name, record, layer=True) for name in FOLDERS])
        except CacheError as error:
            log_once(f"litz: the cache layer {each} is not used: {error.message}")
    try:
        require_trusted_root(root)
        local = [Store(root / name, record) for name in FOLDERS]
    except CacheError as error:
        if not layers:
            raise
        log_once(f"{error}")
        return tuple(
            Tiers(Store.empty(name), tuple(each[k] for each in layers)) for k, name in enumerate(FOLDERS)
        )
    quota = quota_bytes(config.cache_quota)
    keeper = None if quota is None else import_module(_QUOTA).keeper(root, quota)
    remote = import_module(_REMOTE).remote_cache(config) if config.cache_remote else None
    return tuple(
        Tiers(store, tuple(each[k] for each in layers), remote, keeper) for k, store in enumerate(local)
    )


def _trusted_layers(roots: Sequence[Path]) -> tuple[Path, ...]:
    """Return the layers that exist and that only this user and root can write; each other one is a log line."""
    found = []
    for root in roots:
        try:
            why = distrust(root.stat())
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            log_once(f"litz: the cache layer {root} is not used: {why}")
        else:
            found.append(root)
    return tuple(found)


def _size(files: Mapping[str, bytes]) -> int:
    """Return the bytes of an entry's files."""
    return sum(map(len, files.values()))
