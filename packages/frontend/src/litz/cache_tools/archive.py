"""Cache folders as one file: a record for each entry, in the form that entries have in torch's mega-cache, then a
checksum of everything before it, or a signature where machines share a key.

A signature is HMAC-SHA-256 with the option ``cache_remote_key``. Nothing is written before the end was checked.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from litz.cache.mega_cache import KEY, decoded, encoded
from litz.cache.store import FOLDERS, Store
from litz.cache_tools.folders import stores
from litz.configuration import config
from litz_ir.errors import CacheError

_PLAIN, _SIGNED = b"litz cache 1\n", b"litz cache 1 signed\n"
"""First lines of archives with a checksum and with a signature."""

_SUM, _LENGTH, _CHUNK = 32, 8, 1 << 20


def export(file: str | Path, folder: str | Path | None = None) -> int:
    """Write the entries of a cache folder, by default that of the options, to a file; return their number.

    Entries of layers are not written, nor binaries that only a layer has; damaged entries are left out. Raises
    :class:`CacheError` for a folder that others can write, and ``OSError``.
    """
    current = config.current()
    root = current.cache_root() if folder is None else Path(folder)
    unfinished = Path(f"{file}.{os.getpid()}")
    number, digest = 0, _digest(current.cache_remote_key)
    try:
        with unfinished.open("wb") as out:
            _write(out, digest, _SIGNED if current.cache_remote_key else _PLAIN)
            for store in stores(root):
                for key in store.keys():
                    files = store.read(key)
                    if files is not None:
                        content = encoded(files)
                        name = f"{store.folder.name}/{key}".encode()
                        for part in (name, content):
                            _write(out, digest, len(part).to_bytes(_LENGTH, "little"))
                            _write(out, digest, part)
                        number += 1
            out.write(digest.digest())
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)
    return number


def import_(file: str | Path, folder: str | Path | None = None) -> int:
    """Add the entries of a file that :func:`export` wrote to a cache folder, by default that of the options; return the
    number of entries that it has then.

    Entries are executed when they are used: import files that you trust, or set ``cache_remote_key``, without which no
    signed file and with which no other file is taken. Raises :class:`CacheError` for a damaged file, or one of another
    key, before anything is written, and ``OSError`` where the file cannot be read.
    """
    current = config.current()
    root = current.cache_root() if folder is None else Path(folder)
    written = 0
    # A copy is checked and read: others may be able to write to the file meanwhile.
    with tempfile.TemporaryFile() as source:
        with Path(file).open("rb") as given:
            shutil.copyfileobj(given, source, _CHUNK)
        first, end = _checked(source, current.cache_remote_key, file)
        source.seek(first)
        try:
            for name, content in _records(source, end):
                kind, _, key = name.partition("/")
                if kind not in FOLDERS or not KEY.fullmatch(key):
                    raise ValueError(f"{name!r} names no entry")
                written += Store(root / kind).write(key, decoded(content))
        except (ValueError, TypeError) as error:
            raise CacheError(f"{file} is damaged: {error}", hint="export it again") from error
    return written


def _checked(source: IO[bytes], key: str, file: str | Path) -> tuple[int, int]:
    """Check a whole archive; return the positions of its first record and of its checksum."""
    source.seek(0)
    head = source.readline(len(_SIGNED))
    if head not in (_PLAIN, _SIGNED):
        raise CacheError(f"{file} is no archive of a cache", hint="litz cache export writes them")
    if (head == _SIGNED) != bool(key):
        what = "signed, and no key is set" if not key else "not signed"
        raise CacheError(f"{file} is {what}", hint="set LITZ_CACHE_REMOTE_KEY as it was for the export")
    end, digest = source.seek(0, os.SEEK_END) - _SUM, _digest(key)
    source.seek(0)
    left = end
    while left > 0:
        data = source.read(min(left, _CHUNK))
        digest.update(data)
        left -= len(data)
    if end < len(head) or not hmac.compare_digest(source.read(), digest.digest()):
        what = "was changed, or signed with another key" if key else "is damaged: its checksum differs"
        raise CacheError(f"{file} {what}", hint="export it again")
    return len(head), end


def _records(source: IO[bytes], end: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each entry of a checked archive; raise ``ValueError`` for another frame."""
    while source.tell() < end:
        parts = []
        for _ in range(2):
            size = int.from_bytes(source.read(_LENGTH), "little")
            if size > end - source.tell():
                raise ValueError("a record is longer than the file")
            parts.append(source.read(size))
        name, content = parts
        yield name.decode(errors="replace"), content


def _digest(key: str) -> Any:
    """Return a new checksum, or signature where there is a key."""
    return hmac.new(key.encode(), digestmod="sha256") if key else hashlib.sha256()


def _write(out: IO[bytes], digest: Any, data: bytes) -> None:
    """Write bytes, and feed them to the checksum."""
    out.write(data)
    digest.update(data)
