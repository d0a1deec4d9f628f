"""Compilation through AOTAutograd: decompositions, the joint graph and its partition; litz compiles the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from torch._dynamo import disable
from torch._dynamo.utils import counters, flatten_graph_inputs
from torch._functorch.aot_autograd import aot_module_simplified
from torch._logging._internal import trace_log
from torch.fx import GraphModule

import litz_lowering
from litz.capture.aot import CompileSession
from litz.capture.artifact_logs import forms_shown
from litz.capture.attention_masks import select_rows
from litz.capture.descriptors import (
    fixed_positions,
    parameter_positions,
    possible_overlaps,
    written_positions,
)
from litz.capture.runtime_wrappers import with_materialised, zero_tensors
from litz.eager_calls import expanded_inputs, meta_tensors
from litz.eager_calls.changed_parameters import MISSED_BY_GUARDS, with_parameter_guard
from litz.eager_calls.custom_functions import refuse_transformed_functions
from litz.eager_calls.overlapping_arguments import with_overlap_guard
from litz.notices import log_once
from litz.stage_options import traced_decompositions
from litz_ir.collection import collection_paused

_TRACE = "litz.trace.recorder"
"""Module of traces; imported where one is on."""


def aot_backend(session: CompileSession) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    """Return the backend for Dynamo: a cache hit, or compilation through AOTAutograd."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        with collection_paused():
            refuse_transformed_functions(gm)
            if expanded_inputs.returns_view_of_expanded_input(gm):
                return _in_eager(gm, expanded_inputs.LINE, logging.WARNING)
            if meta_tensors.computes_on_meta(gm):
                return _in_eager(gm, meta_tensors.LINE, logging.INFO)
            if session.instrument is None and (
                session.config.debug_files or trace_log.handlers or forms_shown()
            ):
                given = (session.config, session.cache.failures, {"captured": gm})
                session.recorder = import_module(_TRACE).Recorder(*given)
            call = session.lookup(gm, inputs) or _through_aot(session, gm, inputs)
            cached = session.whole.wrapping.written if session.whole is not None else ()
            if written := written_positions(len(inputs)) or cached:
                positions = possible_overlaps(gm, written)
                call = with_overlap_guard(call, gm, inputs, positions, guarded=session.guarded)
            if MISSED_BY_GUARDS:
                call = with_parameter_guard(call, gm, inputs, fixed_positions(gm))
            return with_materialised(call) if not session.guarded or zero_tensors(inputs) else call

    return backend


def _in_eager(gm: GraphModule, line: str, level: int) -> Callable[..., Any]:
    """Return the captured graph itself, and log once why it runs in eager."""
    log_once(line, level)
    call: Callable[..., Any] = disable(gm, reason="it runs in eager")
    return call


def _through_aot(session: CompileSession, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a captured graph through AOTAutograd; raise ``RefusedByEager`` for one that eager refuses."""
    litz_lowering.refuse_overlapping_operands(gm)
    if session.hooks is not None:
        session.hooks.pre_grad(gm)
    select_rows(gm)
    if any(isinstance(each, list | tuple | dict) for each in inputs):
        # Graphs of compiled autograd take a list. The module that unflattens it has no graph of its own.
        return flatten_graph_inputs(gm, inputs, partial(_compile_flat, session))
    unwritten = session.config.freezing
    session.parameters = session.parameters or parameter_positions(gm, inputs, unwritten=unwritten)
    return _compile_flat(session, gm, inputs)


def _compile_flat(session: CompileSession, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Trace and divide a module of flat inputs, and compile the results in the session."""
    # The helper in torch._dynamo.backends.common imports debugging tools, which takes 0.1 seconds.
    counters["aot_autograd"]["total"] += 1
    with litz_lowering.whole_gradients(), litz_lowering.symbolic_floats():
        compiled = aot_module_simplified(
            gm,
            inputs,
            fw_compiler=partial(session.compile, kind="forward"),
            bw_compiler=partial(_compile_backward, session),
            inference_compiler=partial(session.compile, kind="inference"),
            decompositions=litz_lowering.checked_decompositions(
                traced_decompositions(session.config, inputs)
            ),
            partition_fn=session.partition,
            keep_inference_input_mutations=True,
            ignore_shape_env=session.specialised,
        )
    counters["aot_autograd"]["ok"] += 1
    wrapped: Callable[..., Any] = disable(compiled, reason="it is compiled")
    plain = session.plain
    if plain is None:
        return wrapped

    def call(*args: Any) -> Any:
        return (plain.call or wrapped)(*args)

    return call


def _compile_backward(session: CompileSession, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a backward at its first run, hidden from Dynamo, which may be tracing then."""
    compile_it = disable(partial(session.compile, kind="backward"), reason="it compiles")
    result: Callable[..., Any] = disable(compile_it(gm, inputs), reason="it is compiled")
    return result
