"""A program that compiles the graphs between calls of attention, as vLLM does, for tests of artifacts.

``python standalone_pieces.py save FOLDER`` compiles and saves every piece, ``load FOLDER`` loads them. Both print
counts of work done and the results as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.fx import GraphModule
from torch.fx.passes.split_module import split_module

import litz
import litz_lowering
import litz_scheduler
from litz_codegen_cpp.target import CpuTarget

LAYERS, WIDTH, HEADS = 8, 16, 2
SIZES = (1,)
"""Batch sizes with artifacts of their own; others use the artifact of the range."""

counts = {"lower": 0, "schedule": 0, "build": 0}


def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Count the calls of a function."""

    def call(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return function(*args, **kwargs)

    return call


litz_lowering.lower = counted("lower", litz_lowering.lower)
litz_scheduler.schedule = counted("schedule", litz_scheduler.schedule)
CpuTarget.build = counted("build", CpuTarget.build)  # type: ignore[method-assign]


@torch.library.custom_op("pieces::attention", mutates_args=("out",))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    heads = [each.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for each in (q, k, v)]
    out.copy_(nn.functional.scaled_dot_product_attention(*heads).transpose(0, 1).reshape(out.shape))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mixed = torch.empty_like(q)
        torch.ops.pieces.attention(q, k, v, mixed)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.silu(self.up(self.mlp_norm(x))))


class Piece:
    """The artifacts of a piece: one for a range of batch sizes, and those of single sizes."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self.ranged: Any = None
        self.sized: dict[int, Any] = {}
        self.symbol: int | None = None

    def path(self, what: str) -> str:
        return str(self.folder / f"piece_{self.number}_{what}")

    def __call__(self, *args: Any) -> Any:
        size = args[self.symbol] if self.symbol is not None else None
        return self.sized.get(size, self.ranged)(*args)


def concrete(value: Any, size: int) -> Any:
    """Return an example input of this batch size."""
    if isinstance(value, torch.SymInt):
        return size
    shape = [size if isinstance(each, torch.SymInt) else each for each in value.shape]
    return torch.zeros(shape, dtype=value.dtype)


def piecewise(folder: Path, mode: str, format: str) -> Callable[..., Any]:
    """Return a backend that compiles, or loads, the pieces between calls of attention."""

    def backend(gm: GraphModule, inputs: Any, **options: Any) -> Callable[..., Any]:
        numbers: dict[Any, int] = {}
        number = 0
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.target is torch.ops.pieces.attention.default or "attention" in str(node.target):
                numbers[node] = number + 1
                number += 2
            else:
                numbers[node] = number
        split = split_module(gm, None, numbers.__getitem__, keep_original_order=True)
        for name, module in list(split.named_children()):
            if any("attention" in str(node.target) for node in module.graph.nodes):
                continue
            piece = Piece(int(name.removeprefix("submod_")), folder)
            values = [node.meta["example_value"] for node in module.graph.nodes if node.op == "placeholder"]
            symbols = [k for k, each in enumerate(values) if isinstance(each, torch.SymInt)]
            piece.symbol = symbols[0]
            if mode == "save":
                before = module.code
                piece.ranged = litz.standalone_compile(module, values, dynamic_shapes="from_graph")
                piece.ranged.save(path=piece.path("range"), format=format)
                for size in SIZES:
                    examples = [concrete(each, size) for each in values]
                    made = litz.standalone_compile(module, examples, dynamic_shapes="from_example_inputs")
                    made.save(path=piece.path(str(size)), format=format)
                    piece.sized[size] = made
                assert module.code == before
            else:
                load = litz.CompiledArtifact.load
                piece.ranged = load(path=piece.path("range"), format=format)
                piece.sized = {size: load(path=piece.path(str(size)), format=format) for size in SIZES}
            delattr(split, name)
            setattr(split, name, _Called(piece))
        return split.forward

    return backend


class _Called(nn.Module):
    """A piece as a module."""

    def __init__(self, piece: Piece) -> None:
        super().__init__()
        self.piece = piece

    def forward(self, *args: Any) -> Any:
        return self.piece(*args)


def main(mode: str, folder: str, format: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS))).eval().requires_grad_(False)
    start = time.perf_counter()
    # One graph for all sizes: as in vLLM, nothing is guarded.
    unguarded = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    backend = piecewise(Path(folder), mode, format)
    compiled = torch.compile(model, backend=backend, fullgraph=True, options=unguarded)
    errors, first = [], 0.0
    with torch.no_grad():
        for size in (5, 1, 8, 3, 64):
            x = torch.randn(size, WIDTH)
            torch._dynamo.mark_dynamic(x, 0)
            result = compiled(x)
            first = first or time.perf_counter() - start
            errors.append((result - model(x)).abs().max().item())
    found = {
        **counts,
        "traced": counters["aot_autograd"]["total"],
        "graphs": counters["litz"]["graphs"],
        "fallbacks": counters["litz"]["aten_graphs"],
        "errors": errors,
        "seconds": first,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
