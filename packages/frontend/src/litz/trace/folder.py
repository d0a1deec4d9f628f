"""Debug files: one folder for each graph below torch's debug folder of this process, with a repro."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch._dynamo.utils import get_debug_dir

from litz.reports.failures import GraphSource
from litz.reports.repro import SCRIPT, replay_text
from litz.settings import Config
from litz.trace.pages import Page


def folder_of(name: str) -> Path:
    """Return the folder of a graph: ``torch_compile_debug/run_<time>-pid_<pid>/litz/<name>``.

    ``torch._dynamo.config.debug_dir_root`` is its first part.
    """
    return Path(get_debug_dir()) / "litz" / name


def write_graph(source: GraphSource, config: Config, pages: Iterable[Page]) -> None:
    """Write a graph that is to be compiled, with a repro of that, so that both exist if it ends the process."""
    write_pages(source.name, pages)
    folder = folder_of(source.name)
    if (folder / "graph.py").exists():
        (folder / "replay.json").write_text(replay_text(config, source), encoding="utf-8")
        (folder / "repro.py").write_text(SCRIPT, encoding="utf-8")


def write_pages(name: str, pages: Iterable[Page]) -> None:
    """Write the pages of a graph."""
    folder = folder_of(name)
    for page in pages:
        path = folder / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.text, encoding="utf-8")
