"""The command ``litz``: installed targets, and contents of the cache."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from litz.api import config
from litz.cache.artifacts import FOLDERS
from litz.cache.store import MANIFEST, Store
from litz.reports.repro import FOLDER as REPORTS
from litz_ir.errors import CacheError, LitzError
from litz_ir.target import load_target, target_entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, or 1 after an error, which is printed."""
    parser = argparse.ArgumentParser(prog="litz", description="A backend for torch.compile, in layers.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="targets, their capabilities, the cache folder")
    cache = commands.add_parser("cache", help="contents of the cache").add_subparsers(
        dest="action", required=True
    )
    cache.add_parser("list", help="entries and their sizes")
    cache.add_parser("clear", help="delete every entry")
    cache.add_parser("verify", help="read every entry; delete damaged ones")
    given = parser.parse_args(arguments)
    console = Console()
    try:
        if given.command == "info":
            _info(console)
        else:
            _cache(console, given.action)
    except LitzError as error:
        Console(stderr=True).print(str(error), markup=False)
        return 1
    return 0


def _cache_root() -> Path:
    """Return the folder of the cache that the options name."""
    return config.current().cache_root()


def _info(console: Console) -> None:
    """Print installed targets, their capabilities and the cache folder."""
    table = Table("target", "capabilities")
    for name in sorted(target_entries()):
        try:
            text = str(load_target(name).capabilities())
        except LitzError as error:
            text = error.message
        table.add_row(name, text)
    console.print(table)
    console.print(f"cache: {_cache_root()}", markup=False, soft_wrap=True)


def _cache(console: Console, action: str) -> None:
    """List, clear or verify each folder of the cache."""
    for kind in FOLDERS:
        folder = _cache_root() / kind
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
    _reports(console, action)


def _reports(console: Console, action: str) -> None:
    """List or delete the reports of failures, which have nothing to verify."""
    found = [path for path in (_cache_root() / REPORTS).glob("*") if path.is_dir()]
    if action == "clear":
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    console.print(f"{REPORTS}: {len(found)} {'dropped' if action == 'clear' else 'of failures'}")


if __name__ == "__main__":
    sys.exit(main())
