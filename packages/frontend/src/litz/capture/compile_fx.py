"""Compilation of a graph that was captured: ``compile_fx`` and ``compile_fx_inner``, and the session behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from importlib import import_module
from typing import Any

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis, TorchDynamoException
from torch._dynamo.source import EphemeralSource
from torch._dynamo.symbolic_convert import TensorifyState
from torch._guards import CompileContext, TracingContext
from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree
from torch.utils._sympy.symbol import SymT, symbol_is_type

import litz_lowering
from litz.cache.artifacts import ArtifactCache
from litz.capture.aot import CompileSession, Observer
from litz.capture.aot_backend import aot_backend
from litz.capture.graph_fallback import compile_or_fall_back
from litz.capture.runtime_wrappers import with_materialised
from litz.configuration import config as options
from litz.loading import Compiled
from litz.notices import log_once
from litz.reports.failures import GraphSource
from litz.settings import Config
from litz_ir.errors import LitzError
from litz_ir.stack_chunk import in_own_chunk

_NESTED_SIZE = EphemeralSource("intermediate_offsets_or_lengths")
"""torch's source of the ragged size of a jagged tensor that a graph creates."""

_HOOKS = "litz.passes.hooks"
"""Module that runs users' passes over FX graphs; loaded where there are some."""


def compile_fx(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    config: Config | None = None,
    observers: Sequence[Observer] = (),
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, or that was exported or traced by hand, through AOTAutograd.

    ``gm`` may return one value or nested containers of values, and take nested inputs. The result is called like
    ``gm``, which users' passes do not change: they run on a copy. On a GPU, attention in ``gm`` may be replaced by
    equal operations. ``observers`` are called with each graph that is compiled, a later backward graph included. A
    failure outside the stages returns ``gm`` itself, unless ``config.fallback`` is ``error``.
    """
    session = new_session(gm, config if config is not None else options.current(), observers)
    session.guarded = CompileContext.current_compile_id() is not None
    compiled: Callable[..., Any] = in_own_chunk(lambda: compile_in_session(gm, example_inputs, session))
    return compiled


def new_session(gm: GraphModule, config: Config, observers: Sequence[Observer] = ()) -> CompileSession:
    """Return the session of a graph's compilation, with the cache and users' passes; raises as
    :meth:`ArtifactCache.open` does."""
    chosen = config.in_force()
    cache = ArtifactCache.open(chosen, GraphSource(gm, "captured", captured=True))
    return CompileSession(chosen, cache, tuple(observers))


def own_copy(gm: GraphModule) -> GraphModule:
    """Return a copy of a graph to change, which shares parameters and other attributes."""
    copied: GraphModule = import_module(_HOOKS).own_copy(gm)
    return copied


def compile_in_session(
    gm: GraphModule, example_inputs: Sequence[Any], session: CompileSession
) -> Callable[..., Any]:
    """Compile a graph as :func:`compile_fx` does, with the options, cache, passes and instruments of a session."""
    changed = gm
    if passes := session.cache.passes:
        session.hooks = import_module(_HOOKS).graph_hooks(passes)
        changed = own_copy(gm) if passes.pre_grad else gm
    try:
        return _compiled(changed, example_inputs, aot_backend(session))
    except TorchDynamoException:
        raise
    except litz_lowering.RefusedByEager as refusal:
        if session.config.fallback == "error" and not session.guarded:
            raise copy(refusal.error) from None  # the check is remembered, and would keep the traceback
        if session.config.fallback != "silent":
            log_once(f"litz: a graph runs as it was captured: {refusal.reason}")
        return gm.forward  # the module itself prints the error as well
    except Exception as error:
        if session.guarded and not isinstance(error, LitzError) and _specialise_floats(gm):
            # Torch cannot trace some operators with symbolic floats. Dynamo traces the program again, with constants.
            raise TensorifyScalarRestartAnalysis from error
        if session.config.fallback == "error":
            raise  # it may be the program's own error
        # An error of the program itself is raised again by eager when the graph runs.
        session.cache.failures.report(error, "capture", "a graph runs as it was captured")
        return gm
    finally:
        _drop_guards_of_nested_sizes()


def _drop_guards_of_nested_sizes() -> None:
    """Drop guards that compare ragged sizes of jagged tensors that the graph creates, with numbers or one another.

    Such a size differs from all of them in every call. No argument has it, so that Dynamo fails with an internal error
    when it writes the guard.
    """
    context = TracingContext.try_get()
    shapes = None if context is None or context.fake_mode is None else context.fake_mode.shape_env
    if shapes is None:
        return
    created = {
        symbol
        for symbol, sources in shapes.var_to_sources.items()
        if sources and all(source == _NESTED_SIZE for source in sources)
    }
    # Ragged sizes of arguments have no range. Whether one of them is equal to a size of the graph may change.
    constant = created | shapes.var_to_range.keys()
    shapes.guards[:] = [
        guard
        for guard in shapes.guards
        if not (guard.expr.free_symbols & created and guard.expr.free_symbols <= constant)
    ]


def _specialise_floats(gm: GraphModule) -> bool:
    """Let Dynamo make constants of the floats that a graph takes, once it traces the program again.

    Return false where it takes none that are symbols so far: tracing again would change nothing.
    """
    values = [node.meta.get("example_value") for node in gm.graph.nodes]
    leaves = {
        leaf for each in values if isinstance(each, torch.SymFloat) for leaf in each.node._expr.free_symbols
    }
    names = {str(leaf) for leaf in leaves if symbol_is_type(leaf, SymT.FLOAT)}
    remaining = {name for name in names if not TensorifyState.should_specialize(name)}
    for name in remaining:
        TensorifyState.specialize(name)
    return bool(remaining)


def _compiled(
    gm: GraphModule, example_inputs: Sequence[Any], backend: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    """Compile a graph by a backend that takes flat arguments and returns flat results."""
    trees = gm.graph._codegen
    if isinstance(trees, _PyTreeCodeGen):
        return _with_flat_trees(gm, example_inputs, backend, trees)
    if returns_tuple(gm):
        return backend(gm, example_inputs)
    return _with_flat_outputs(gm, example_inputs, backend)


def compile_fx_inner(
    gm: GraphModule, example_inputs: Sequence[Any], *, name: str = "graph", config: Config | None = None
) -> Callable[..., Any]:
    """Compile a graph of functional ATen operations whose nodes carry ``meta["val"]``, without AOTAutograd and
    gradients.

    Passes over AOT graphs run on a copy of ``gm``. The result takes the inputs as arguments, or one list of them, and
    returns what the graph returns.
    """
    chosen = (config if config is not None else options.current()).in_force()
    cache, decisions = ArtifactCache.open(chosen), ()
    if cache.passes:
        hooks = import_module(_HOOKS)
        users = hooks.graph_hooks(cache.passes)
        if users is not None and users.rewrites_aot:
            gm = own_copy(gm)
            decisions = users.post_grad(gm)
    compiled: Compiled = compile_or_fall_back(gm, name, chosen, cache, decisions=decisions)
    single = not returns_tuple(gm)
    function = with_materialised(lambda *inputs: compiled.call(list(inputs)))

    def call(*args: Any) -> Any:
        results = function(*(args[0] if len(args) == 1 and isinstance(args[0], list) else args))
        return results[0] if single and compiled.artifact is not None else results

    return call


def returns_tuple(gm: GraphModule) -> bool:
    """Report whether a graph returns a flat tuple or list."""
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
    """Compile the flat graph inside one that flattens its own arguments and rebuilds its own results.

    Exported graphs, and those traced by ``make_fx``, do that.
    """
    compiled = backend(GraphModule(gm, _copy_graph(gm)), trees.process_inputs(*example_inputs))

    def call(*args: Any) -> Any:
        return trees.process_outputs(list(compiled(*trees.process_inputs(*args))))

    return call


def _with_flat_outputs(
    gm: GraphModule, example_inputs: Sequence[Any], backend: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    """Compile a graph with its result flattened, and rebuild the result after each call."""
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
    """Return a copy of the module's FX graph."""
    graph = torch.fx.Graph()
    result = graph.graph_copy(gm.graph, {})
    graph.output(result)
    return graph
