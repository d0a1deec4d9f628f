"""Make the pictures of the pages from runs of this machine: `python tools/pictures.py [doctor explain ...]`.

Rich writes what terminals show as SVG, Chromium shows the page of `litz.explain`, and matplotlib draws the events of a
trace. The programs run in a new folder, `example` in that of temporary files.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import chromium
from charts import figure, write_svg
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMNS = 100

MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x):
        y = self.norm(nn.functional.gelu(self.up(x)))
        return x + self.down(y) * 0.5


torch.manual_seed(0)
model, x = Block(256), torch.randn(1024, 256)
compiled = torch.compile(model, backend="litz")
"""
INFERENCE = MODEL + "with torch.no_grad():\n    compiled(x)\n"
TRAINING = MODEL + "compiled(x).square().mean().backward()\n"
PROFILED = (
    MODEL
    + """from torch.profiler import ProfilerActivity, profile

for _ in range(3):
    compiled(x).square().mean().backward()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    compiled(x).square().mean().backward()
profiler.export_chrome_trace("trace.json")
"""
)
EXPLAINED = (
    MODEL
    + """import litz

blocks = nn.Sequential(Block(256), Block(256))
litz.explain(blocks, x, backward=True, measure=True).to_html("page.html")
with torch.no_grad():
    print(litz.explain(model, x))
"""
)
WRONG = '''import sys
from dataclasses import dataclass

import torch
import litz
from litz.passes import Passes
from litz_ir.loops import map_bodies
from litz_ir.scalar import Op, build, transform


@dataclass(frozen=True)
class Minima:
    """A pass with a fault: maxima become minima."""

    name: str = "minima"
    ulp: int = 0
    before: str = "inline"

    def apply(self, data, context):
        def other(node):
            return build.op("minimum", *node.args) if isinstance(node, Op) and node.name == "maximum" else node

        changed = (map_bodies(one, lambda body: transform(body, other)) for one in data.operations)
        return data.with_operations(tuple(changed))

    def uuid(self):
        return self.name


def program(x):
    return torch.maximum(x, -x) * 3


litz.config.passes = Passes(loops=(Minima(),))
x = torch.randn(8, 16)
if sys.argv[1] == "bisect":
    print(litz.bisect(program, (x,)))
else:
    torch.compile(program, backend="litz", options={"self_check": "first"})(x)
'''

PROGRAMS = {
    "model.py": INFERENCE, "train.py": TRAINING, "profiled.py": PROFILED, "explained.py": EXPLAINED, "wrong.py": WRONG,
}  # fmt: skip


def run(folder: Path, command: list[str], **environment: str) -> str:
    """Run a command in a folder, and return what it prints."""
    given = {"XDG_CACHE_HOME": str(folder / ".cache"), "COLUMNS": str(COLUMNS), **environment}
    settings = [f"{name}={value}" for name, value in given.items()]
    done = subprocess.run(
        ["env", "-u", "LITZ_CACHE_DIR", *settings, *command],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    return done.stdout


def litz(folder: Path, *arguments: str, **environment: str) -> str:
    """Run the command `litz`."""
    return run(folder, [sys.executable, "-m", "litz", *arguments], **environment)


def python(folder: Path, *arguments: str, **environment: str) -> str:
    """Run a Python program."""
    return run(folder, [sys.executable, *arguments], **environment)


def terminal(name: str, title: str, text: str | Tree) -> None:
    """Write what a terminal shows as an SVG that needs no other file."""
    width = COLUMNS if isinstance(text, Tree) else max(COLUMNS, *map(len, text.splitlines()))
    console = Console(record=True, width=min(width, 130), file=io.StringIO())
    console.print(text if isinstance(text, Tree) else Text.from_ansi(text.rstrip()))
    svg = console.export_svg(title=title, unique_id=f"litz-{name}")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
    (PICTURES / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")


def doctor(folder: Path) -> None:
    """The checks of `litz doctor`."""
    terminal("doctor", "litz doctor", litz(folder, "doctor"))


def bench(folder: Path) -> None:
    """The times of a program's graphs."""
    terminal("bench", "litz bench train.py", litz(folder, "bench", "--seconds", "2", "train.py"))


def logs(folder: Path) -> None:
    """The log lines of an artifact."""
    text = python(folder, "model.py", TORCH_LOGS="fusion", TORCH_LOGS_FORMAT="%(message)s")
    terminal("logs", "TORCH_LOGS=fusion python model.py", text)


def bisect(folder: Path) -> None:
    """The culprit of a program that a pass breaks."""
    terminal("bisect", "print(litz.bisect(program, (x,)))", python(folder, "wrong.py", "bisect"))


def self_check(folder: Path) -> None:
    """The warning about a wrong kernel."""
    terminal("self-check", "LITZ_SELF_CHECK=first python program.py", python(folder, "wrong.py", "check"))


def debug(folder: Path) -> None:
    """The folder of a graph."""
    python(folder, "model.py", TORCH_COMPILE_DEBUG="1")
    (graph,) = folder.glob("torch_compile_debug/run_*/litz/*")
    terminal("debug-folder", "TORCH_COMPILE_DEBUG=1 python model.py", _tree(graph, f"…/litz/{graph.name}"))


def _tree(folder: Path, label: str) -> Tree:
    tree = Tree(label)
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            tree.add(_tree(path, f"{path.name}/"))
        else:
            tree.add(f"{path.name} [dim]{path.stat().st_size:,} bytes[/dim]")
    return tree


def explain(folder: Path) -> None:
    """The report as text, and the page with a kernel under the pointer."""
    terminal("report", "print(litz.explain(model, x))", python(folder, "explained.py"))
    with chromium.opened(folder / "page.html", folder / "profile", 1400, 900) as page:
        page.evaluate("document.querySelector('#sources-0 .src[data-k]').focus()")
        page.evaluate("document.querySelector('#graph-0').scrollIntoView()")
        page.picture(PICTURES / "explain-graph.webp", 60)


def trace(folder: Path) -> None:
    """The events of a training step by time."""
    python(folder, "profiled.py")
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    found = [each for each in events if each.get("cat") == "cpu_op"]
    graphs = [each for each in found if each["name"].startswith("litz graph")]
    inner = [each for each in found if {"kernel", "routine"} & each.get("args", {}).keys()]
    start = min(each["ts"] for each in graphs)
    drawn, axes = figure(9.5, 0.32 * (len(inner) + len(graphs)) + 0.9)
    rows = sorted([*graphs, *inner], key=lambda each: (each["ts"], -each["dur"]))
    for row, event in enumerate(rows):
        name = textwrap.shorten(event["name"], 70, placeholder=" …")
        colour = "#c5cae9" if event in graphs else "#3f51b5" if "kernel" in event["args"] else "#8d6e63"
        axes.barh(row, event["dur"], left=event["ts"] - start, height=0.4, color=colour)
        axes.text(event["ts"] - start, row - 0.25, name, fontsize=7, va="bottom")
    axes.set_yticks([])
    axes.set_ylim(len(rows), -0.9)
    axes.set_xlabel("microseconds")
    write_svg(drawn, PICTURES / "trace.svg")


MADE: Mapping[str, Callable[[Path], None]] = {
    "doctor": doctor, "bench": bench, "logs": logs, "bisect": bisect, "self-check": self_check, "debug": debug,
    "explain": explain, "trace": trace,
}  # fmt: skip


def main() -> int:
    """Make the pictures named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*MADE, []])
    for name in parser.parse_args().names or MADE:
        folder = Path(tempfile.gettempdir()) / "example"
        folder.mkdir()
        for program, text in PROGRAMS.items():
            (folder / program).write_text(text, encoding="utf-8")
        MADE[name](folder)
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
