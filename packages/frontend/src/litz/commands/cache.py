"""``litz cache``: entries of the cache are listed, verified, moved, explained or deleted."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litz.cache.store import FOLDERS
from litz.cache_tools.archive import export, import_
from litz.cache_tools.folders import clear, entries, gc, merge, verify, why_miss
from litz.configuration import config
from litz.reports.repro import FOLDER as REPORTS

_SHOWN = 12
"""Characters of a key that tables have; ``why-miss`` takes them."""


def add_parsers(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parsers of all actions."""
    actions.add_parser("list", help="number and size of the entries of each kind")
    actions.add_parser("ls", help="every entry: kind, key, bytes, age, last use, graph")
    actions.add_parser("clear", help="delete every entry")
    actions.add_parser("verify", help="read every entry; delete damaged ones")
    missed = actions.add_parser(
        "why-miss", help="say which part of a graph's key differs from the nearest entry"
    )
    missed.add_argument("key", nargs="?", default="", help="beginning of its key; default the newest entry")
    merged = actions.add_parser("merge", help="add the entries of folders to a folder")
    merged.add_argument("into", help="folder that gets them")
    merged.add_argument("folders", nargs="+", help="folders that have them")
    for name, text in (("export", "write all entries to one file"), ("import", "add the entries of a file")):
        actions.add_parser(name, help=text).add_argument("file", help="path of the archive")
    collected = actions.add_parser("gc", help="delete the entries used least recently")
    collected.add_argument("--quota", default="", help="bytes, such as 5GB; default the option cache_quota")


def cache(console: Console, given: argparse.Namespace) -> int:
    """Do what the action says; return 0, or 1 where a damaged entry or no miss was found. Raises ``CacheError``."""
    root = config.current().cache_root()
    match given.action:
        case "list":
            _list(console, root)
        case "ls":
            _table(console)
        case "clear":
            dropped = clear()
            for kind in FOLDERS:
                console.print(f"{kind}: {dropped.get(kind, 0)} entries dropped")
            _reports(console, root, drop=True)
        case "verify":
            for each in verify():
                console.print(f"{each.kind}: {each.whole} whole, {each.damaged} damaged")
        case "why-miss":
            missed = why_miss(given.key)
            none = (
                "no graph with such a key is in the cache folder"
                if given.key
                else "the cache folder has no graph"
            )
            text = none if missed is None else str(missed)
            console.print(text, markup=False, soft_wrap=True)
            return int(missed is None)
        case "merge":
            console.print(f"{merge(given.into, *given.folders)} entries added")
        case "export":
            console.print(f"{export(given.file)} entries written")
        case "import":
            console.print(f"{import_(given.file)} entries in the cache")
        case _:
            done = gc(given.quota)
            console.print(f"{done.entries} entries deleted, {_size(done.freed)}; {_size(done.bytes)} stay")
    return 0


def _list(console: Console, root: Path) -> None:
    """Print number and size of the entries of each kind."""
    found = entries()
    for kind in FOLDERS:
        sizes = [each.bytes for each in found if each.kind == kind]
        console.print(f"{kind}: {len(sizes)} entries, {_size(sum(sizes))}" if sizes else f"{kind}: nothing")
    _reports(console, root, drop=False)


def _table(console: Console) -> None:
    """Print a table of all entries."""
    table, now = Table("kind", "key", "bytes", "age", "last use", "graph"), time.time()
    for each in entries():
        ages = (_age(now - each.written), _age(now - each.used))
        table.add_row(each.kind, each.key[:_SHOWN], f"{each.bytes:,}", *ages, Text(each.graph))
    console.print(table)


def _size(count: int) -> str:
    """Return a number of bytes as text, in MB from one on."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count:,} bytes"


def _age(seconds: float) -> str:
    """Return a time span as text, in the largest unit that it has one of; 0 where the clock was set back."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _reports(console: Console, root: Path, *, drop: bool) -> None:
    """List or delete the reports of failures, which have nothing to verify."""
    found = [path for path in (root / REPORTS).glob("*") if path.is_dir()]
    if drop:
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    console.print(f"{REPORTS}: {len(found)} {'dropped' if drop else 'of failures'}")
