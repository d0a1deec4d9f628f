"""``litz cache``: entries of the cache are listed, verified or deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from litz.cache.store import FOLDERS, MANIFEST, Store
from litz.configuration import config
from litz.reports.repro import FOLDER as REPORTS
from litz_ir.errors import CacheError


def cache(console: Console, action: str) -> int:
    """List, clear or verify each folder of the cache, as ``action`` says; return 0. Raises ``CacheError``."""
    root = config.current().cache_root()
    for kind in FOLDERS:
        folder = root / kind
        if not folder.is_dir():
            console.print(f"{kind}: nothing")
            continue
        store = Store(folder)
        keys = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}"))
        if action == "clear":
            if not store.writable:
                raise CacheError(f"{folder} cannot be written", hint="clear it as the user who made it")
            for path in folder.iterdir():  # entries that a killed process left half written too
                store.drop(path.name)
            console.print(f"{kind}: {len(keys)} entries dropped")
        elif action == "verify":
            whole = sum(store.read(key) is not None for key in keys)
            dropped = " and dropped" if store.writable else ""
            console.print(f"{kind}: {whole} whole, {len(keys) - whole} damaged{dropped}")
        else:
            total = sum(path.stat().st_size for key in keys for path in (folder / key).iterdir())
            console.print(f"{kind}: {len(keys)} entries, {total / 1e6:.1f} MB")
    _reports(console, root, action)
    return 0


def _reports(console: Console, root: Path, action: str) -> None:
    """List or delete the reports of failures, which have nothing to verify."""
    found = [path for path in (root / REPORTS).glob("*") if path.is_dir()]
    if action == "clear":
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    console.print(f"{REPORTS}: {len(found)} {'dropped' if action == 'clear' else 'of failures'}")
