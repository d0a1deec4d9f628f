"""Calls of compiled programs, without AOTAutograd: the same for a program that was compiled here and a loaded one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litz.capture.donated import SavedTensors
from litz.capture.plain import with_gradients
from litz.capture.runtime_wrappers import inference_call, uncast, with_materialised, without_autograd
from litz.host.runtime.load import HostFunction
from litz.standalone.argument_checks import argument_check
from litz.standalone.compiled_program import CompiledProgram

ProgramCall = Callable[[Sequence[Any]], Any]
"""A program as a function of its flat list of arguments."""


def program_call(
    program: CompiledProgram, forward: HostFunction, backward: HostFunction | None = None
) -> ProgramCall:
    """Return a program as a function of its flat list of arguments, given the calls of its graphs.

    The function raises :class:`ArtifactError` for arguments that the program was not compiled for.
    """
    graphs, form = program.graphs, program.form
    if backward is None:
        function = inference_call(graphs.wrapping, without_autograd(uncast(forward)))
    else:
        function = with_gradients(graphs, uncast(forward), uncast(backward), SavedTensors())
    function = with_materialised(function)
    check = argument_check(graphs.forward.plan)
    bound = [program.constants[name] for name in form.bound]
    returned, returns_tuple = form.returned_inputs, form.returns_tuple

    def call(args: Sequence[Any]) -> Any:
        given = [*bound, *args]
        check(given)
        results = function(*given)
        if returned:
            results = list(results)
            for position, source in returned:
                results[position] = given[source]
        return tuple(results) if returns_tuple else results[0]

    return call
