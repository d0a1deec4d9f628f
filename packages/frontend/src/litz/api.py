"""What users call: ``compile_fx``, ``compile_fx_inner``, ``mark_step_begin``, ``explain``, ``config``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree

from litz.cache.artifacts import ArtifactCache
from litz.capture.aot import CompileSession, Observer, aot_backend, compile_or_fall_back
from litz.failures import GraphSource
from litz.loading import Compiled
from litz.options import variable_notices
from litz.settings import Config, ConfigHandle

config = ConfigHandle(os.environ)
"""The options: ``litz.config.patch(...)``, ``litz.config.fallback = ...``; see :class:`litz.settings.Config`."""

FOREIGN_VARIABLES = variable_notices(os.environ)
"""What is to be told of Inductor's variables, once litz compiles something."""


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    config: Config | None = None,
    observers: Sequence[Observer] = (),
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, or one exported or traced by hand, through AOTAutograd.

    ``gm`` may return one value or a nest of them and take nested inputs. The result is called like ``gm``.
    ``observers`` see each graph that is compiled, a later backward included.
    """
    chosen = config if config is not None else _current()
    cache = ArtifactCache.open(chosen, GraphSource(gm, "captured", captured=True))
    session = CompileSession(chosen, cache, tuple(observers))
    try:
        return _compiled(gm, example_inputs, aot_backend(session))
    except TorchDynamoException:
        raise
    except Exception as error:
        if chosen.fallback == "error":
            raise  # it may be the program's own
        # What the program itself does wrong is raised by eager, too, when it runs.
        cache.failures.report(error, "capture", "a graph runs as it was captured")
        return gm


def _compiled(
    gm: GraphModule, example_inputs: Sequence[Any], backend: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    """A graph through a backend that takes flat arguments and results."""
    trees = gm.graph._codegen
    if isinstance(trees, _PyTreeCodeGen):
        return _with_flat_trees(gm, example_inputs, backend, trees)
    if _returns_tuple(gm):
        return backend(gm, example_inputs)
    return _with_flat_outputs(gm, example_inputs, backend)


def compile_fx_inner(
    gm: GraphModule, example_inputs: Sequence[Any], *, name: str = "graph", config: Config | None = None
) -> Callable[..., Any]:
    """Compile a graph of functional ATen operations whose nodes carry ``meta["val"]``; no AOTAutograd, no gradients.

    The result takes the inputs as arguments, or one list of them, and gives what the graph returns.
    """
    chosen = config if config is not None else _current()
    compiled: Compiled = compile_or_fall_back(gm, name, chosen, ArtifactCache.open(chosen))
    single = not _returns_tuple(gm)

    def call(*args: Any) -> Any:
        given = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args)
        results = compiled.call(given)
        return results[0] if single and compiled.artifact is not None else results

    return call


def mark_step_begin() -> None:
    """Say that a new step of inference or training begins: nothing, and allowed anywhere.

    A recorded graph never writes over what somebody holds, so there is nothing that a mark could release: what nobody
    holds is free without one, what somebody holds stays as it is. The function is there so that scripts which mark
    their steps for other backends run as they are; ``torch.compiler.cudagraph_mark_step_begin`` may stay in them too.
    """


def _current() -> Config:
    return config.current()


def _returns_tuple(gm: GraphModule) -> bool:
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    result = output.args[0]
    flat = isinstance(result, tuple | list) and all(not isinstance(r, tuple | list | dict) for r in result)
    return flat and not isinstance(result, dict)


def _with_flat_trees(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    backend: Callable[..., Callable[..., Any]],
    trees: _PyTreeCodeGen,
) -> Callable[..., Any]:
    """A graph that flattens its own arguments and rebuilds its own results, as traced and exported ones do: litz
    compiles what is between."""
    compiled = backend(GraphModule(gm, _copy_graph(gm)), trees.process_inputs(*example_inputs))

    def call(*args: Any) -> Any:
        return trees.process_outputs(list(compiled(*trees.process_inputs(*args))))

    return call


def _with_flat_outputs(
    gm: GraphModule, example_inputs: Sequence[Any], backend: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    """Flatten what the graph returns on the way in, rebuild it on the way out."""
    flat = GraphModule(gm, _copy_graph(gm))
    output = next(node for node in reversed(flat.graph.nodes) if node.op == "output")
    leaves, spec = pytree.tree_flatten(output.args[0], is_leaf=lambda x: isinstance(x, torch.fx.Node))
    output.args = (tuple(leaves),)
    flat.recompile()
    compiled = backend(flat, example_inputs)

    def call(*args: Any) -> Any:
        return pytree.tree_unflatten(list(compiled(*args)), spec)

    return call


def _copy_graph(gm: GraphModule) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    result = graph.graph_copy(gm.graph, {})
    graph.output(result)
    return graph
