"""Tools for tests of programs that litz compiles: their code, kernels and recompiles, and comparison with eager."""

from __future__ import annotations

import contextlib
import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.callback import CallbackArgs, callback_handler
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from litz.api import compile_fx, config
from litz.devices import gpu
from litz.loading import Compiled
from litz_ir.plan import Launch, Plan, plans_in

__all__ = [
    "Recompiles",
    "assert_close_to_eager",
    "assert_kernels",
    "count_recompiles",
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
    state, on_gpus = torch.random.get_rng_state(), gpu.get_rng_state_all() if gpu.is_available() else []
    outcomes = []
    for compiles in (False, True):
        torch.random.set_rng_state(state)
        gpu.set_rng_state_all(on_gpus)
        own, given, named = copy.deepcopy((function, args, kwargs))
        called = torch.compile(own, backend=_backend([])) if compiles else own
        result = called(*given, **named)
        if backward:
            _sum_of(result).backward()
        outcomes.append(_outcome(own, given, named, result, backward))
    for (name, expected), (_, found) in zip(*outcomes, strict=True):
        _compare(name, expected, found, rtol, atol)


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
    result = torch.compile(function, backend=_backend(observed))(*args, **kwargs)
    return result, observed


def _launches(plan: Plan) -> list[Launch]:
    return [step for each in plans_in(plan) for step in each.steps if isinstance(step, Launch)]


def _sum_of(result: Any) -> torch.Tensor:
    """Return the sum of the elements of all results that require a gradient."""
    leaves = [
        each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if not leaves:
        raise AssertionError("no result requires a gradient: leave out backward, or set requires_grad")
    return torch.stack([each.float().sum() for each in leaves]).sum()


def _outcome(
    function: Callable[..., Any], args: Any, kwargs: Any, result: Any, backward: bool
) -> list[tuple[str, Any]]:
    """Return what a call did, by names for errors."""
    found = [(f"result {k}", each) for k, each in enumerate(pytree.tree_leaves(result))]
    inputs = pytree.tree_leaves((args, kwargs))
    found += [(f"input {k} after the call", each) for k, each in enumerate(inputs)]
    if backward:
        found += [
            (f"gradient of input {k}", each.grad)
            for k, each in enumerate(inputs)
            if isinstance(each, torch.Tensor)
        ]
        if isinstance(function, torch.nn.Module):
            found += [(f"gradient of {name}", each.grad) for name, each in function.named_parameters()]
    if isinstance(function, torch.nn.Module):
        found += [(f"buffer {name} after the call", each) for name, each in function.named_buffers()]
    return found


def _compare(name: str, expected: Any, found: Any, rtol: float | None, atol: float | None) -> None:
    """Raise ``AssertionError`` where a value differs from eager's."""
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if type(expected) is not type(found) or not (expected is found or expected == found):
            raise AssertionError(f"{name} is {found!r:.80}, in eager {expected!r:.80}")
        return
    torch.testing.assert_close(
        found,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        check_stride=True,
        msg=lambda text: f"{name}: {text}",
    )
