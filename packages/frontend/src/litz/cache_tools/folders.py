"""Operations on cache folders. Without a folder as argument they concern the one that the options name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litz.cache.key_parts import Miss
from litz.cache.misses import miss_in, parts_of_entry
from litz.cache.name_sets import DEMOTIONS, NameSets
from litz.cache.quota import Collected, bytes_of, collect
from litz.cache.store import FOLDERS, MANIFEST, Store, require_trusted_root
from litz.configuration import config
from litz.environment.variables import quota_bytes
from litz_ir.errors import CacheError


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """An entry of a cache folder."""

    kind: str
    """Kind: ``graphs``, ``binaries``, ``fx_graphs``, ``tiles``, ``matmuls`` or ``demotions``."""

    key: str
    """Key of the entry."""

    bytes: int
    """Bytes of its files."""

    written: float
    """Time at which it was written, in seconds since the epoch."""

    used: float
    """Time of the last use, exact to an hour, in seconds since the epoch."""

    graph: str
    """Name of the graph and the user's first line; empty for entries that belong to no single graph."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of reading all entries of one kind."""

    kind: str
    """Kind of the entries."""

    whole: int
    """Number of entries whose checksums are right, and that only this user and root can write."""

    damaged: int
    """Number of other entries; they are deleted where the folder can be written."""


def entries(folder: str | Path | None = None) -> tuple[EntryInfo, ...]:
    """Return the entries of a cache folder, by default that of the options, by kind and key. A folder that is missing
    has none. Raises :class:`CacheError` for one that others can write."""
    return tuple(_entries(_root(folder)))


def verify(folder: str | Path | None = None) -> tuple[Verified, ...]:
    """Read every entry of a cache folder, by default that of the options, and count those whose checksums and owners
    are right, by kind.

    Others are deleted, where the folder can be written. Layers are not read. Raises :class:`CacheError` for a folder
    that others can write.
    """
    found = []
    for store in stores(_root(folder)):
        keys = store.keys()
        whole = sum(store.read(key) is not None for key in keys)
        found.append(Verified(store.folder.name, whole, len(keys) - whole))
    return tuple(found)


def merge(into: str | Path, *folders: str | Path) -> int:
    """Add the entries of cache folders to another one, which is made where it is missing; return the number of new
    entries.

    Entries are verified; damaged ones are left out. Demoted operations of a graph are joined. Raises
    :class:`CacheError` for ``folders`` that are missing, before anything is written, for those that others can write,
    and where the first one cannot be written.
    """
    given = tuple(map(Path, folders))
    for folder in given:
        if not folder.is_dir():
            raise CacheError(
                f"there is no folder {folder}", hint="name a cache folder, as LITZ_CACHE_DIR does"
            )
    added = 0
    for folder in given:
        for source in stores(folder):
            target = _writable(Path(into) / source.folder.name)
            for key in source.keys():
                files = source.read(key)
                if files is None:
                    continue
                if not (target.folder / key / MANIFEST).exists():
                    added += target.write(key, files)
                elif source.folder.name == "demotions":
                    names = NameSets(source, DEMOTIONS).read(key)
                    NameSets(target, DEMOTIONS).add(key, names or frozenset())
    return added


def gc(quota: str = "", folder: str | Path | None = None) -> Collected:
    """Delete entries of a cache folder that takes more than ``quota``, those used least recently first, until it takes
    nine tenths of it; return what was deleted.

    ``quota`` is a number of bytes with a unit, such as ``5GB`` (1 KB is 1,000 bytes, 1 KiB 1,024), by default the
    option ``cache_quota``; ``folder`` is by default that of the options. Raises :class:`CacheError` without a
    quota, and for a folder that others can write.
    """
    most = quota_bytes(quota or config.current().cache_quota)
    if most is None:
        raise CacheError("no quota is given", hint="litz cache gc --quota 5GB, or set LITZ_CACHE_QUOTA")
    root = _root(folder)
    _writable(root / FOLDERS[0])
    return collect(root, most)


def clear(folder: str | Path | None = None) -> dict[str, int]:
    """Delete every entry of a cache folder, by default that of the options; return their numbers by kind. Raises
    :class:`CacheError` for a folder that cannot be written."""
    found = {}
    for store in stores(_root(folder)):
        if not store.writable:
            raise CacheError(f"{store.folder} cannot be written", hint="clear it as the user who made it")
        found[store.folder.name] = len(store.keys())
        for path in store.folder.iterdir():  # entries that a killed process left half written too
            if path.is_dir() and not path.is_symlink():
                store.drop(path.name)
            else:
                path.unlink(missing_ok=True)
    return found


def why_miss(key: str = "", folder: str | Path | None = None) -> Miss | None:
    """Return the reason that a graph was compiled instead of found: the parts of its key that differ from those of the
    nearest entry, in the cache folder and its layers.

    The graph is one of the cache folder: one that only a layer has was found there. ``key`` is the beginning of the key
    of a graph's entry, by default that of the entry written last: each entry was a miss once. ``None`` where no entry
    fits.
    """
    layers = () if folder is not None else config.current().layer_roots()
    return miss_in(key, _root(folder), layers)


def stores(root: Path) -> Iterator[Store]:
    """Yield the folders of entries that a cache folder has. Raises :class:`CacheError` for one that others can
    write."""
    require_trusted_root(root)
    for kind in FOLDERS:
        if (root / kind).is_dir():
            yield Store(root / kind)


def _entries(root: Path) -> Iterator[EntryInfo]:
    """Yield the entries of a cache folder."""
    for store in stores(root):
        kind = store.folder.name
        for key in store.keys():
            path = store.folder / key
            parts = parts_of_entry(path) if kind == FOLDERS[0] else None
            written, used = (path / MANIFEST).stat().st_mtime, path.stat().st_mtime
            yield EntryInfo(kind, key, bytes_of(path), written, used, "" if parts is None else parts.graph)


def _root(folder: str | Path | None) -> Path:
    """Return a cache folder, by default that of the options."""
    return config.current().cache_root() if folder is None else Path(folder)


def _writable(folder: Path) -> Store:
    """Return a folder of entries, made where it is missing; raise :class:`CacheError` where it cannot be written."""
    store = Store(folder)
    if not store.writable:
        raise CacheError(f"{folder} cannot be written", hint="name a folder of yours")
    return store
