"""Tools for tests of programs that litz compiles, and of devices out of tree: code, kernels and recompiles of programs,
comparison with eager, and conformance of devices."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.callback import CallbackArgs, callback_handler
from torch.fx import GraphModule

from litz.capture.compile_fx import compile_fx
from litz.configuration import config
from litz.debugging.comparison import Program, compare, eager
from litz.explain.captures import without_recompile_limit
from litz.host.runtime.device_memory import TorchMemory
from litz.loading import Compiled
from litz_ir.plan import Launch, Plan, plans_in
from litz_ir.target import load_target
from litz_ir.target.conformance import Report, run_conformance
from litz_scheduler.conformance import run_graph_conformance

__all__ = [
    "Recompiles",
    "assert_close_to_eager",
    "assert_kernels",
    "count_recompiles",
    "device_conformance",
    "fresh_cache",
    "run_and_get_code",
]


def run_and_get_code(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
    """Compile a function for these arguments and call it once.

    Returns the result and the sources in the order of compilation: of each graph those of its kernels, then its host
    program. ``function`` is not compiled yet; its own compiled state is not changed.
    """
    result, graphs = _compiled_call(function, args, kwargs)
    texts = []
    for compiled in graphs:
        if compiled.artifact is not None:
            texts += [unit.text for unit in compiled.artifact.units]
        texts.append(compiled.source)
    return result, [text for text in texts if text]


def assert_kernels(function: Callable[..., Any], *args: Any, count: int, **kwargs: Any) -> Any:
    """Assert that one call of a function launches ``count`` kernels of litz, in all of its graphs; return its result.

    Raises ``AssertionError`` with the operations of each kernel.
    """
    result, graphs = _compiled_call(function, args, kwargs)
    plans = [compiled.artifact.plan for compiled in graphs if compiled.artifact is not None]
    launches = [launch for plan in plans for launch in _launches(plan)]
    if len(launches) != count:
        lines = [
            f"  {launch.kernel}: {', '.join(dict.fromkeys(each.operation for each in launch.origins))}"
            for launch in launches
        ]
        raise AssertionError("\n".join([f"{len(launches)} kernels are launched, not {count}:", *lines]))
    return result


def assert_close_to_eager(
    function: Callable[..., Any],
    *args: Any,
    backward: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    **kwargs: Any,
) -> None:
    """Assert that a compiled function does what it does in eager: results, inputs that it mutates and, with
    ``backward``, gradients of the results' sum with respect to inputs and parameters.

    Values are compared by ``torch.testing.assert_close``, dtypes and strides exactly. Both runs begin with the same
    state of the random number generators and with copies of the arguments; a module is copied too.
    """
    program = Program(function, args, kwargs, backward)
    expected = program.run(eager)
    with without_recompile_limit():
        found = program.run(lambda own: torch.compile(own, backend=_backend([])))
    compare(expected, found, rtol, atol)


@dataclass(slots=True)
class Recompiles:
    """Compilations of Dynamo inside a block."""

    compiles: list[str] = field(default_factory=list)
    """Identity of each compilation, as torch's logs give it: ``"0/1"`` is the second one of the first frame."""

    @property
    def count(self) -> int:
        """Number of compilations of a frame that was compiled before."""
        return sum(not each.endswith("/0") for each in self.compiles)


@contextlib.contextmanager
def count_recompiles() -> Iterator[Recompiles]:
    """Count the recompilations inside a ``with`` block, of every backend."""
    found = Recompiles()

    def record(started: CallbackArgs) -> None:
        found.compiles.append(str(started.compile_id))

    callback_handler.register_start_callback(record)
    try:
        yield found
    finally:
        callback_handler.remove_start_callback(record)


@contextlib.contextmanager
def fresh_cache() -> Iterator[str]:
    """Compile without anything that was compiled before, inside a ``with`` block: give a new, empty cache folder,
    which is removed at the end, and reset Dynamo before and after.
    """
    folder = tempfile.mkdtemp(prefix="litz-")
    torch._dynamo.reset()
    try:
        with config.patch(cache_dir=folder):
            yield folder
    finally:
        torch._dynamo.reset()
        shutil.rmtree(folder, ignore_errors=True)


def device_conformance(kind: str) -> tuple[Report, Report]:
    """Run both conformance suites, of kernels and of whole graphs, on the current device of a ``kind``.

    Tensors are allocated and copied by torch, and sources are built in a folder that is removed at the end, which takes
    a minute or so for a target that calls a compiler. Returns the report of each suite; raises ``TargetError`` for a
    kind without an installed target.
    """
    target, memory = load_target(kind), TorchMemory(kind)
    with tempfile.TemporaryDirectory(prefix="litz-") as folder:
        kernels = run_conformance(target, Path(folder), memory)
        return kernels, run_graph_conformance(target, Path(folder), memory)


def _backend(observed: list[Compiled]) -> Callable[..., Callable[..., Any]]:
    """Return a backend that appends each graph that litz compiles to a list."""
    chosen = config.current()

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_fx(gm, inputs, config=chosen, observers=(observed.append,))

    return backend


def _compiled_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, list[Compiled]]:
    """Return the result of a compiled call, and the graphs that were compiled for it."""
    observed: list[Compiled] = []
    with without_recompile_limit():
        result = torch.compile(function, backend=_backend(observed))(*args, **kwargs)
    return result, observed


def _launches(plan: Plan) -> list[Launch]:
    return [step for each in plans_in(plan) for step in each.steps if isinstance(step, Launch)]
