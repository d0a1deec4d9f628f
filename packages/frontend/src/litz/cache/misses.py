"""The reason that a graph was compiled instead of found, from the entries of a cache folder and its layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from litz.cache.artifacts import KEY_FILE
from litz.cache.key_parts import KeyParts, Miss, nearest_miss
from litz.cache.store import FOLDERS, MANIFEST, Store


def miss_in(key: str, root: Path, layers: Iterable[Path] = ()) -> Miss | None:
    """Return the parts of a graph's key that differ from those of the nearest entry in a cache folder and its layers.

    ``key`` is the beginning of the key of an entry in the folder; where it is empty, the entry written last is meant:
    each entry was a miss once. ``None`` where no entry fits.
    """
    known = list(_known_parts(root))
    own = [(written, each, parts) for written, each, parts in known if each.startswith(key)]
    if not own:
        return None
    _, found, parts = max(own, key=lambda each: each[0])
    below = [each for layer in layers for each in _known_parts(layer)]
    return nearest_miss(found, parts, ((each, other) for _, each, other in [*known, *below]))


def parts_of_entry(entry: Path) -> KeyParts | None:
    """Return the parts of a graph's key; ``None`` where they cannot be read."""
    try:
        return KeyParts.of((entry / KEY_FILE).read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None  # litz cache verify reports damage


def _known_parts(root: Path) -> Iterator[tuple[float, str, KeyParts]]:
    """Yield the time, the key and its parts, of each graph in a cache folder or layer."""
    store = Store(root / FOLDERS[0], layer=True)
    for key in store.keys():
        parts = parts_of_entry(store.folder / key)
        if parts is not None:
            yield (store.folder / key / MANIFEST).stat().st_mtime, key, parts
