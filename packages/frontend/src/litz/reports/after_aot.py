"""Scripts of ``TORCHDYNAMO_REPRO_AFTER=aot``: a graph of AOTAutograd that fails, with a repro and a script that shrinks
it, in the folder in which torch writes its minifier's.

Torch's own scripts for this level compile by Inductor, whatever backend failed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from torch._dynamo.utils import get_debug_dir

from litz.reports.failures import GraphSource
from litz.reports.fx_source import graph_source
from litz.reports.repro import SCRIPT, replay_text
from litz.settings import Config
from litz_ir.errors import WrongResult

log = logging.getLogger("litz")


def write_scripts(config: Config, source: GraphSource, error: Exception, text: str) -> None:
    """Write the scripts of a graph's first failure, and log where they are; raise ``OSError``, and ``TypeError`` for a
    graph that cannot be written as code."""
    folder = Path(get_debug_dir()) / "minifier" / "litz" / source.name
    if folder.exists():
        return
    check = "wrong" if isinstance(error, WrongResult) else "crash"
    files = {
        "graph.py": graph_source(source.gm),
        "replay.json": replay_text(config, source),
        "error.txt": f"{text}\n",
        "repro.py": SCRIPT,
        "minifier_launcher.py": _LAUNCHER.format(check=check),
    }
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    log.warning("litz: minifier script written to %s", folder / "minifier_launcher.py")


_LAUNCHER = '''"""Shrink the graph whose failure error.txt describes: python minifier_launcher.py [module ...]

The modules are imported first: those that register operators, rules or targets. The result is the folder minified.
"""

import sys
from pathlib import Path

import litz

FOLDER = Path(__file__).parent
print(litz.minify(FOLDER, check={check!r}, into=FOLDER / "minified", modules=sys.argv[1:]))
'''
