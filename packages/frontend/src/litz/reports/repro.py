"""Reports of failures on disk: one folder each, with the graph, a script that repeats the failure, and the
traceback.

Only their owner can read them, since they contain parts of a program.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

import litz_ir
from litz.reports.failures import GraphSource
from litz.reports.fx_source import graph_source
from litz.settings import Config
from litz_ir.loops import LoopGraph
from litz_ir.origin import describe_locations
from litz_lowering import origin_of

FOLDER = "reports"
"""Name of the folder of all reports, in the cache."""

MAX_REPORTS = 50
"""Number of reports in a folder; older ones are deleted."""

_SHOWN = 3
"""Most of the user's lines that a report names for a failure without a node."""

_LEFT_OUT = (
    *("fallback", "cache", "cache_dir", "cache_layers", "cache_remote", "cache_remote_key", "cache_quota"),
    *("debug_files", "passes"),
)
"""Options that a repro sets by itself, and the passes of the program, which have no text: those over AOT graphs have
run on the graph of the report."""


def source_lines(gm: GraphModule, names: frozenset[str] = frozenset()) -> Sequence[str]:
    """Return the user's first source lines behind a graph, or behind its nodes of these ``names``."""
    nodes = (node for node in gm.graph.nodes if node.op not in ("placeholder", "output"))
    return describe_locations(origin_of(node) for node in nodes if not names or node.name in names)[:_SHOWN]


def write_report(
    config: Config, source: GraphSource, error: Exception, text: str, loops: LoopGraph | None
) -> Path:
    """Return the folder of a failure's report, and write it unless it exists; raise ``OSError`` and others."""
    code = source.gm.code
    digest = hashlib.sha256(f"{text}\0{code}".encode()).hexdigest()[:16]
    root = _root(config)
    folder = root / digest
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp(dir=root, prefix=".writing-"))
        for name, content in _files(config, source, error, text, loops).items():
            (unfinished / name).write_text(content, encoding="utf-8")
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(unfinished, ignore_errors=True)  # another process was faster
        _delete_old(root)
    return folder


def _root(config: Config) -> Path:
    """Return the folder of all reports: in the cache, or a temporary one without a cache of this user."""
    if config.uses_disk:
        root = config.cache_root() / FOLDER
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if root.stat().st_uid == os.getuid():
                root.chmod(0o700)
                return root
        except OSError:
            pass  # a cache that cannot be used is reported where it is opened
    return _temporary()


@functools.cache
def _temporary() -> Path:
    """Return a folder for the reports of this process, which is not deleted at its end."""
    return Path(tempfile.mkdtemp(prefix="litz-reports-"))


def _delete_old(root: Path) -> None:
    """Delete all but the newest reports."""
    found = sorted(root.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in found[MAX_REPORTS:]:
        shutil.rmtree(old, ignore_errors=True)


def _files(
    config: Config, source: GraphSource, error: Exception, text: str, loops: LoopGraph | None
) -> dict[str, str]:
    """Return the files of a report by name."""
    files = {"error.txt": f"{text}\n\n{''.join(traceback.format_exception(error))}\n{machine()}\n"}
    try:
        files["graph.py"] = graph_source(source.gm)
        files["replay.json"] = replay_text(config, source)
        files["repro.py"] = SCRIPT
    except TypeError as problem:
        files["graph.txt"] = f"# no repro: {problem}\n{source.gm.code}"
    if loops is not None:
        files["loops.txt"] = litz_ir.to_text(loops)
    return files


def machine() -> str:
    """Return versions and platform in one line."""
    return f"torch {torch.__version__}, Python {platform.python_version()}, {platform.platform()}"


def changed_options(config: Config) -> dict[str, Any]:
    """Return the options that differ from their defaults and can be written out, by name."""
    default = Config()
    given = {each.name: getattr(config, each.name) for each in fields(Config) if each.name not in _LEFT_OUT}
    return {name: value for name, value in given.items() if value != getattr(default, name)}


def replay_text(config: Config, source: GraphSource) -> str:
    """Return the way in which a graph is compiled as JSON, as :class:`litz.debugging.replay.Replay` reads it."""
    # Subgraphs of higher-order operators need metadata of their own, which AOTAutograd makes.
    through_aot = source.captured or any(node.op == "get_attr" for node in source.gm.graph.nodes)
    replay = {
        "name": source.name,
        "options": changed_options(config),
        "frozen": sorted(source.frozen),
        "donated": sorted(source.donated),
        "saved": sorted(source.saved),
        "through_aot": through_aot,
        "calls": 8 if config.autotune or config.cuda_graphs else 1,
    }
    return json.dumps(replay, indent=1) + "\n"


SCRIPT = '''"""Repeat the failure that error.txt describes: python repro.py

Compile the graph of graph.py as replay.json says, which raises the failure, and call it with random elements.
"""

from pathlib import Path

import graph

from litz.debugging.replay import Replay

results = Replay.read(Path(__file__).parent).run(graph.graph(), graph.INPUTS)
print("no failure:", ", ".join(str(getattr(each, "shape", each)) for each in results))
'''
"""The script that repeats a failure."""
