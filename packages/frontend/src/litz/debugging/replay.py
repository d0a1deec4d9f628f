"""Replay of a graph that was written out as code: its metadata, its compilation and its calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from litz.cache.artifacts import ArtifactCache
from litz.capture.aot import CompileSession
from litz.capture.compile_fx import compile_in_session
from litz.capture.graph_fallback import compile_or_fall_back
from litz.configuration import config
from litz.settings import Config

REPLAY = "replay.json"
"""Name of the file of a replay, next to the graph."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The way in which a written graph is compiled and called."""

    name: str = "graph"
    """Name of the graph in messages."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that differ from the defaults."""

    frozen: Sequence[str] = ()
    """Placeholders assumed equal from call to call; like the next two without effect ``through_aot``."""

    donated: Sequence[str] = ()
    """Placeholders whose memory may be reused."""

    saved: Sequence[str] = ()
    """Nodes whose results may have other strides than eager's."""

    through_aot: bool = True
    """True for a graph that AOTAutograd traces first; False for one that it gave."""

    calls: int = 1
    """Number of calls."""

    @staticmethod
    def read(folder: Path) -> Replay:
        """Return the replay of a folder; raise ``OSError`` without one, ``TypeError`` and ``ValueError`` for others."""
        return Replay(**json.loads((folder / REPLAY).read_text(encoding="utf-8")))

    def to_json(self) -> str:
        """Return the replay as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def config(self, **changes: Any) -> Config:
        """Return the options of a compilation, some of them changed.

        The cache folder, the compiler and the program's passes, which no file can hold, are those of this process.
        """
        current = config.current()
        here = {"cache_dir": current.cache_dir, "compiler": current.compiler, "passes": current.passes}
        return Config().replaced({**here, **self.options, **changes})

    def compiled(
        self, gm: GraphModule, inputs: Sequence[Any], options: Config, cache: ArtifactCache
    ) -> Callable[..., Any]:
        """Compile a graph for inputs whose attribute ``dynamic`` names the dimensions of symbolic size.

        The result is called like ``gm``. Metadata of the graph's nodes is computed unless AOTAutograd does it.
        """
        if self.through_aot:
            given = traced_inputs(inputs) if any(map(_is_symbolic, inputs)) else inputs
            return compile_in_session(gm, given, CompileSession(options, cache))
        propagate(gm, inputs)
        frozen, donated, saved = map(frozenset, (self.frozen, self.donated, self.saved))
        call = compile_or_fall_back(gm, self.name, options, cache, frozen, donated, saved).call

        def run(*given: Any) -> Any:
            with torch.no_grad():
                return call([each.detach() if isinstance(each, torch.Tensor) else each for each in given])

        return run

    def run(self, gm: GraphModule, inputs: Sequence[Any]) -> Any:
        """Compile the graph without the cache, call it, and compute gradients where inputs require them.

        Returns the results; raises what fails, since operations do not fall back.
        """
        options = self.config(fallback="error", cache=False)
        compiled = self.compiled(gm, inputs, options, ArtifactCache.open(options))
        for _ in range(self.calls):
            results = compiled(*inputs)
        backward(results)
        return results


def backward(results: Sequence[Any]) -> None:
    """Compute the gradients of the sum of each result that requires them."""
    found = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    torch.autograd.backward([each.sum() for each in found])


def propagate(gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Compute the metadata of a graph's nodes, ``meta["val"]``; raise the errors of operations."""
    given = traced_inputs(inputs)
    FakeTensorProp(gm, _mode_of(given)).propagate_dont_convert_inputs(*given)


def traced_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Return the fake tensors and symbols of inputs during compilation."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with mode:
        return [_example(mode, each, f"input_{k}") for k, each in enumerate(inputs)]


def _mode_of(given: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of fake tensors; a new one where there is none."""
    modes = (getattr(each, "fake_mode", None) for each in given)
    found: FakeTensorMode | None = next(filter(None, modes), None)
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) if found is None else found


def _is_symbolic(value: Any) -> bool:
    """Report whether an input is a symbol, or has sizes that are."""
    return type(value) is int or bool(getattr(value, "dynamic", ()))


def _example(mode: FakeTensorMode, value: Any, name: str) -> Any:
    """Return the fake tensor or symbol of one input."""
    source, shapes = ConstantSource(name), mode.shape_env
    assert shapes is not None
    if type(value) is int:
        symbol = shapes.create_symbol(value, source, DimDynamic.DUCK)
        return shapes.create_symintnode(symbol, hint=value, source=source)
    if not isinstance(value, torch.Tensor):
        return value
    dynamic = getattr(value, "dynamic", ())
    sizes = [DimDynamic.DUCK if k in dynamic else DimDynamic.STATIC for k in range(value.dim())]
    return mode.from_tensor(value, symbolic_context=StatelessSymbolicContext(sizes), source=source)
