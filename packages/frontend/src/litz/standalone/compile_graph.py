"""Compilation outside of ``torch.compile``: a graph and example inputs become an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch._functorch import config as functorch_config
from torch.fx import GraphModule, Node
from torch.fx.graph import _PyTreeCodeGen

from litz.capture.aot import CompileSession
from litz.capture.compile_fx import compile_in_session, new_session, own_copy, returns_tuple
from litz.configuration import config
from litz.debug import Instruments
from litz.options import config_from
from litz.settings import Config
from litz.standalone.artifact import CompiledArtifact, machines_of
from litz.standalone.calls import program_call
from litz.standalone.captured_parts import CapturedParts
from litz.standalone.compiled_program import CompiledProgram
from litz.standalone.dynamic_shapes import DynamicShapes, checked_source, has_symbols, traced_sizes
from litz_ir.errors import ArtifactError

_SETTINGS: Mapping[str, bool] = MappingProxyType(
    {
        "force_non_lazy_backward_lowering": True,
        "force_autograd_cache": False,
        "bundled_autograd_cache": False,
    }
)
"""Settings of AOTAutograd: a backward is compiled with its forward, and AOTAutograd's cache, of pickles, is not used.
Releases of torch without one of them do so by themselves."""

_PATCHES = "config_patches"
"""Key of ``options`` under which Inductor's users give a mapping of options."""


def compile(
    gm: GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None
) -> CompiledArtifact:
    """Compile a graph as :func:`standalone_compile` does, for its own symbols as sizes where it has some, and for the
    sizes of the example inputs where it has none; ``options`` and errors are those of that function."""
    source: DynamicShapes = "from_graph" if has_symbols(gm) else "from_example_inputs"
    return standalone_compile(gm, example_inputs, dynamic_shapes=source, options=options)


def standalone_compile(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    dynamic_shapes: str = "from_graph",
    options: Mapping[str, Any] | None = None,
) -> CompiledArtifact:
    """Compile a graph that Dynamo captured, a part of one, or one that was traced by hand, to an artifact.

    ``gm`` is not changed. ``example_inputs`` are tensors and numbers in the order of its inputs. ``dynamic_shapes``
    selects sizes: the symbols of the graph (``from_graph``), those of the compilation by ``torch.compile`` that is
    running (``from_tracing_context``), or the example inputs' as constants (``from_example_inputs``). ``options`` are
    those of ``torch.compile``, by themselves or under ``config_patches``; the others are in force as ``litz.config``
    has them. A graph whose inputs need gradients is compiled with its backward. Raises ``ConfigError`` for unknown
    options and sources, and ``ArtifactError`` for a ``gm`` that is no ``GraphModule``.

    The artifact of a graph that cannot be saved, or that litz could not compile, is called all the same: its
    ``unsaveable`` has the reason, and ``save`` raises it.
    """
    if not isinstance(gm, GraphModule):
        raise ArtifactError(
            f"a torch.fx.GraphModule is compiled, got {type(gm).__name__}",
            hint="torch.fx.symbolic_trace makes one; litz.aot_compile takes functions and modules",
        )
    source = checked_source(dynamic_shapes)
    given = dict(options or {})
    given |= given.pop(_PATCHES, None) or {}
    return compiled_artifact(gm, example_inputs, config_from(config.current(), None, given), source)


def compiled_artifact(
    gm: GraphModule, example_inputs: Sequence[Any], chosen: Config, source: DynamicShapes
) -> CompiledArtifact:
    """Compile a copy of a graph to an artifact, with these options and sizes from this source."""
    own, session, parts, call = compiled_parts(gm, example_inputs, chosen, source)
    if call is own:
        return CompiledArtifact(
            call, unsaveable="litz could not compile the graph, which runs as it was captured"
        )
    nested = _nested(own)
    return CompiledArtifact(call, unsaveable=nested) if nested else artifact_of(session, parts, call)


def compiled_parts(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    chosen: Config,
    source: DynamicShapes,
    parameters: frozenset[int] = frozenset(),
    *,
    loads: bool = True,
) -> tuple[GraphModule, CompileSession, CapturedParts, Callable[..., Any]]:
    """Compile a copy of a graph, and return it, the session, the parts that were compiled, and the call.

    ``parameters`` are the positions of inputs that are parameters and buffers, of a graph that was exported. The call
    is the copy itself where litz could not compile it. Without ``loads`` the call raises: what is compiled is for
    another machine.
    """
    own = own_copy(gm)
    parts = CapturedParts(own)
    session = new_session(own, chosen, (parts.seen.append,))
    session.compiled, session.specialised = parts.take, source == "from_example_inputs"
    session.parameters = parameters
    if not loads:
        session.instrument = lambda gm, kind: Instruments(loads=False)
    settings = {name: value for name, value in _SETTINGS.items() if hasattr(functorch_config, name)}
    with traced_sizes(own, example_inputs, source) as inputs, functorch_config.patch(settings):
        call = compile_in_session(own, inputs, session)
    return own, session, parts, call


def artifact_of(session: CompileSession, parts: CapturedParts, call: Callable[..., Any]) -> CompiledArtifact:
    """Return the artifact of a session whose graphs are compiled; ``call`` calls it through AOTAutograd's wrapper."""
    if session.whole is not None:
        parts.take_plain(session.whole)
    graphs, form = parts.graphs, parts.form
    if graphs is None or form is None:
        return CompiledArtifact(call, unsaveable=parts.why_not)
    options = session.config
    program = CompiledProgram(
        graphs, form, machines_of(graphs, options), parts.constants, options.cuda_graphs, options.freezing
    )
    calls = [each.call for each in parts.seen]
    return CompiledArtifact(program_call(program, *calls), program, binaries=session.cache)


def _nested(gm: GraphModule) -> str:
    """Return the reason that a graph with nested inputs or results cannot be saved; empty for a flat one."""
    if isinstance(gm.graph._codegen, _PyTreeCodeGen):
        return "the graph flattens its arguments and rebuilds its results"
    result = gm.graph.output_node().args[0]
    if returns_tuple(gm) or isinstance(result, Node):
        return ""
    return "the graph returns nested containers"
