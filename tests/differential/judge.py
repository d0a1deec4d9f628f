"""Comparison of a program in eager and compiled: results, inputs, aliasing, gradients."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from unittest import mock

import torch
from torch._dynamo import guards
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import Interpreter, Node

import litz
from differential.programs import Arguments, Base, Function, Input, Mode, Program

T = TypeVar("T")
Fault = Literal["none", "litz", "torch", "rejected"]
LONGEST_MESSAGE = 600
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-4, torch.float16: 8e-3, torch.bfloat16: 6e-2}
WIDENED = 1e-2
"""Tolerance of wider floats in programs with bf16, whose values may have been rounded to eight bits."""
INTENDED = (
    "litz: a graph runs as ATen operations: ",
    "litz: a graph runs as it was captured: ",
    "litz: a call runs in eager: ",
)
"""Beginnings of messages about graphs and calls that litz leaves to ATen, or to eager, on purpose."""
REFUSAL = "litz: a graph runs as it was captured: eager refuses "
"""Beginning of the message about an operator that raises in eager: no program that runs in eager has one."""
SHIFTS = (0, 3)
"""Shifts of the arguments' values, one for each call of the compiled function: state of one call must not affect
another."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results and side effects of a run."""

    results: tuple[torch.Tensor, ...]
    given: Arguments
    gradients: tuple[torch.Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The party at fault, and the difference between the compiled program and eager. ``rejected``: eager refuses the
    program, or litz says that it does not compile it ahead of time; ``torch``: the program is as wrong under
    ``aot_eager``, which no backend can mend."""

    fault: Fault
    message: str = ""


def judge(program: Program) -> Verdict:
    """Compare a program compiled by litz with eager."""
    verdict = judge_by(
        lambda: [_run(program, program.function(), shift) for shift in SHIFTS],
        lambda backend, wanted: _difference(program, backend, wanted),
    )
    if verdict.fault == "litz" and "strides" in verdict.message and not _shapes_are_known(program):
        return Verdict("torch", f"torch's own shape rules are wrong: {verdict.message}")
    return verdict


def judge_by(run_eager: Callable[[], T], difference: Callable[[str, T], str | None]) -> Verdict:
    """Return the verdict on a program. ``difference`` describes how its run under a backend differs from eager's."""
    try:
        with without_warnings():
            wanted = run_eager()
    except Exception as error:
        return Verdict("rejected", _shown(error))
    return blame(difference("litz", wanted), lambda: difference("aot_eager", wanted))


def blame(message: str | None, under_aot_eager: Callable[[], str | None]) -> Verdict:
    """Return the verdict on the difference of litz from eager; that of ``aot_eager`` is only asked for if litz
    differs."""
    if message is None:
        return Verdict("none")
    theirs = under_aot_eager()
    if theirs is None:
        return Verdict("litz", message)
    first = theirs.partition("\n")[0]
    same = first.partition(":")[0] == message.partition(":")[0]
    return Verdict("torch", theirs if same else f"{first}; litz: {message}")


def compiled_calls_differ(
    run: Callable[[], Sequence[T]],
    wanted: Sequence[T],
    differ: Callable[[T, T], str | None],
    **settings: Any,
) -> str | None:
    """Describe the first difference of the calls of a program, compiled afresh, from eager's; ``None`` where there is
    none. ``settings`` are options of litz, whose warnings are differences too. Dynamo does not time its guards, which
    empties the CPU's caches."""
    torch._dynamo.reset()
    with (
        mock.patch.object(guards, "profile_guard_manager", lambda *_: 0.0),
        litz.config.patch(**settings),
        complaints() as said,
    ):
        message = calls_differ(run, wanted, differ)
    return message or gave_up(said)


def calls_differ(
    run: Callable[[], Sequence[T]], wanted: Sequence[T], differ: Callable[[T, T], str | None]
) -> str | None:
    """Describe the first difference of calls from eager's, or the exception that ends them."""
    try:
        with without_warnings():
            got = run()
    except Exception as error:
        return _shown(error)
    for call, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        message = differ(mine, theirs)
        if message is not None:
            return f"call {call}: {message}"
    return None


def gave_up(said: Sequence[str]) -> str | None:
    """Describe litz's first warning."""
    return f"litz gave up: {said[0][:LONGEST_MESSAGE]}" if said else None


@contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings in the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:LONGEST_MESSAGE]}"


def _shapes_are_known(program: Program) -> bool:
    """Report that the strides of torch's meta kernels, which every backend has to follow, are those of its
    operators."""
    agree: list[bool] = []

    class Checked(Interpreter):
        def run_node(self, node: Node) -> Any:
            result, told = super().run_node(node), node.meta.get("val")
            if isinstance(result, torch.Tensor) and isinstance(told, torch.Tensor):
                each = zip(result.shape, result.stride(), told.stride(), strict=True)
                agree.append(all(size < 2 or a == b for size, a, b in each))
            return result

    backend = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(Checked(graph).run))
    torch._dynamo.reset()
    try:
        function = torch.compile(program.function(), backend=backend, fullgraph=True, dynamic=False)
        _run(program, function, SHIFTS[0])
    except Exception:
        return True
    return all(agree)


def check(
    function: Function,
    bases: Sequence[Base],
    inputs: Sequence[Input],
    *,
    mode: Mode = "plain",
    dynamic: bool = False,
) -> None:
    """Assert that a compiled function computes what eager computes for some inputs."""
    program = _Written(tuple(bases), tuple(inputs), (), (), mode, dynamic, function)
    wanted = [_run(program, function, shift) for shift in SHIFTS]
    message = _difference(program, "litz", wanted)
    assert message is None, message


@dataclass(frozen=True, slots=True)
class _Written(Program):
    """A program with a function written by hand."""

    written: Function | None = None

    def function(self, name: str = "program") -> Function:
        assert self.written is not None
        return self.written


def _difference(program: Program, backend: str, wanted: Sequence[Outcome]) -> str | None:
    """Describe the difference of the program compiled by ``backend`` from eager; ``None`` where there is none."""

    def run() -> list[Outcome]:
        compiled = torch.compile(program.function(), backend=backend, fullgraph=True, dynamic=program.dynamic)
        return [_run(program, compiled, shift) for shift in SHIFTS]

    least = WIDENED if program.has_bf16 else 0.0
    return compiled_calls_differ(run, wanted, lambda a, b: _compare(a, b, least), cache=False)


@contextmanager
def complaints(*, of_refusals: bool = True) -> Iterator[list[str]]:
    """Collect litz's warnings in the block. A graph that falls back has right results and is a defect all the same,
    unless ATen runs it on purpose. Without ``of_refusals`` operators may raise in eager."""
    said: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if not message.startswith(INTENDED) or (of_refusals and message.startswith(REFUSAL)):
                said.append(message)

    logger, keeper = logging.getLogger("litz"), Keeper()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(keeper)
    try:
        with litz.config.patch(fallback="warn"):
            yield said
    finally:
        logger.removeHandler(keeper)
        logger.propagate = propagate


def _run(program: Program, function: Callable[..., tuple[torch.Tensor, ...]], shift: int) -> Outcome:
    with program.surroundings(), without_warnings():
        given = program.arguments(shift)
        results = function(*given.inputs)
        wanted = [r for r in results if r.requires_grad]
        if wanted and given.leaves:
            total = sum((r.double() * (k + 1)).sum() for k, r in enumerate(wanted))
            assert isinstance(total, torch.Tensor)
            total.backward()
    return Outcome(results, given, tuple(leaf.grad for leaf in given.leaves))


# --- comparing ------------------------------------------------------------------------------------------


def _compare(mine: Outcome, theirs: Outcome, least: float) -> str | None:
    """Describe the difference of two runs; ``least`` is the smallest tolerance for floats."""
    if len(mine.results) != len(theirs.results):
        return f"{len(mine.results)} results, eager has {len(theirs.results)}"
    named = [(f"result {k}", a, b) for k, (a, b) in enumerate(zip(mine.results, theirs.results))]
    named += [(f"input {k}", a, b) for k, (a, b) in enumerate(zip(mine.given.inputs, theirs.given.inputs))]
    for name, a, b in named:
        found = tensors_differ(a, b, least)
        if found is not None:
            return f"{name}: {found}"
    for k, (a, b) in enumerate(zip(mine.given.bases, theirs.given.bases)):
        found = values_differ(a, b, least)
        if found is not None:
            return f"base {k}: {found}"
    for k, (g, h) in enumerate(zip(mine.gradients, theirs.gradients)):
        nothing = g if h is None else h if g is None else None
        if nothing is not None and bool(nothing.any()):
            return f"gradient {k}: {'none' if g is None else 'one'} where eager has {'none' if h is None else 'one'}"
        found = values_differ(g, h, least) if g is not None and h is not None else None
        if found is not None:
            return f"gradient {k}: {found}"
    return _aliasing(mine, theirs) or _versions(mine, theirs)


def tensors_differ(a: torch.Tensor, b: torch.Tensor, least: float) -> str | None:
    """Describe the difference of two tensors, strides and ``requires_grad`` included."""
    for name in ("dtype", "shape", "requires_grad"):
        if getattr(a, name) != getattr(b, name):
            return f"{name} {getattr(a, name)}, eager's is {getattr(b, name)}"
    if a.numel() and any(n > 1 and s != t for n, s, t in zip(a.shape, a.stride(), b.stride())):
        return f"strides {a.stride()}, eager's are {b.stride()}"
    return values_differ(a, b, least)


def items_differ(a: Any, b: Any, least: float) -> str | None:
    """Describe the first difference of two observations, which may be lists of others; tensors are compared by their
    elements."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{len(a)} items, eager has {len(b)}"
        parts = (items_differ(*pair, least) for pair in zip(a, b, strict=True))
        return next((f"item {k}: {part}" for k, part in enumerate(parts) if part is not None), None)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return values_differ(a, b, least)
    same = type(a) is type(b) and (a == b or (a != a and b != b))
    return None if same else f"{a!r}, eager has {b!r}"


def values_differ(a: torch.Tensor, b: torch.Tensor, least: float) -> str | None:
    """Describe the difference of two tensors' elements beyond rounding; ``least`` is the smallest tolerance."""
    a, b = a.detach(), b.detach()
    if a.device != b.device:
        return f"on {a.device}, eager's is on {b.device}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {tuple(a.shape)}, eager's is {b.dtype} {tuple(b.shape)}"
    if torch.equal(a, b):
        return None
    if a.dtype.is_complex:
        found = values_differ(
            torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()), least
        )
        return None if found is None else f"parts: {found}"
    if a.dtype.is_floating_point:
        finite = b[b.isfinite()].double().abs()
        scale = 1 + (float(finite.max()) if finite.numel() else 0.0)
        tolerance = max(TOLERANCE[a.dtype], least)
        if torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return None
    apart = ((a != b) & ~((a != a) & (b != b))).nonzero()
    where = tuple(apart[0].tolist()) if len(apart) else ()
    return (
        f"{len(apart)} of {a.numel()} values differ, first at {where}: {a[where]!s}, eager's is {b[where]!s}"
    )


def _aliasing(mine: Outcome, theirs: Outcome) -> str | None:
    """Describe a difference in the pairs of tensors that share memory, or in the distance of their starts."""
    names = [
        *(f"result {k}" for k in range(len(mine.results))),
        *(f"input {k}" for k in range(len(mine.given.inputs))),
    ]
    ours, eager = (*mine.results, *mine.given.inputs), (*theirs.results, *theirs.given.inputs)
    for i in range(len(mine.results)):
        for j in range(i + 1, len(names)):
            a, b = _distance(ours[i], ours[j]), _distance(eager[i], eager[j])
            if a != b:
                return f"{names[i]} and {names[j]}: {_sharing(a)}, in eager {_sharing(b)}"
    return None


def _distance(a: torch.Tensor, b: torch.Tensor) -> int | None:
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not a.numel() or not b.numel():
        return None
    return int(a.storage_offset()) * a.element_size() - int(b.storage_offset()) * b.element_size()


def _sharing(distance: int | None) -> str:
    return "no memory shared" if distance is None else f"memory shared, {distance} bytes apart"


def _versions(mine: Outcome, theirs: Outcome) -> str | None:
    """Describe a difference in the versions that autograd counts for written inputs."""
    for k, (a, b) in enumerate(zip(mine.given.inputs, theirs.given.inputs)):
        if not a.is_inference() and bool(a._version) != bool(b._version):
            return f"input {k}: version {a._version}, eager's is {b._version}"
    return None
