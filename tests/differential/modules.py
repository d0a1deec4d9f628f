"""Modules that are called several times, written to in between: parameters, buffers, arguments, ints and None."""

from __future__ import annotations

import contextlib
import linecache
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from hypothesis import strategies
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from differential.effects import NOTED
from differential.generator import DTYPES, FAMILIES, generate
from differential.programs import Program, Statement, is_inexact
from differential.scope import Choose, Scope

MODULE_FAMILIES = FAMILIES | {"write": 14, "effect": 12, "product": 16}
CALLS = 4
DECIDES = re.compile(
    r"[<>]|[=!]=|arg|any\(|all\(|count_|sign|max|min|relu|clamp|abs|where|mask|nonzero|\.to\(torch\.[iub]"
)
"""Operations that branch on a value: their programs get integers alone, of which every sum is exact."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class ModuleProgram:
    """A program some of whose inputs are parameters or buffers of a module, and the ``writes`` before each call.

    ``frozen`` parameters want no gradient, ``tied`` ones have a second name. ``numbers`` are the calls' ints.
    """

    program: Program
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    frozen: tuple[str, ...]
    tied: tuple[str, ...]
    writes: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the inputs that are arguments of every call."""
        own = {*self.parameters, *self.buffers}
        return tuple(each.name for each in self.program.inputs if each.name not in own)

    def source(self) -> str:
        """Return the method ``forward`` as Python."""
        reads = [f"{name} = self.{name}" for name in (*self.parameters, *self.buffers)]
        for name in self.tied:
            reads.append(f"{name}_too = self.{name}_too")
        used = [f"{name}_too + number" for name in self.tied]
        used.append(f"{self.program.outputs[0]} * number")
        results = ", ".join((*self.program.outputs, *used, "nothing", "number"))
        lines = [*reads, *(each.line for each in self.program.statements), f"return ({results})"]
        given = ", ".join(("self", *self.arguments, "number", "nothing=None"))
        return f"def forward({given}):\n" + "".join(f"    {line}\n" for line in lines)

    def without(self, gone: set[int]) -> ModuleProgram:
        """Return the program without some statements."""
        return replace(self, program=self.program.without(gone))

    def as_text(self) -> str:
        """Return a full description, as a report of a mismatch shows it."""
        lines = [self.source(), f"mode = {self.program.mode!r}  # dynamic = {self.program.dynamic}"]
        for base in self.program.bases:
            lines.append(f"{base!r}")
        lines += [f"{each!r}" for each in self.program.inputs]
        lines.append(f"parameters = {self.parameters}  # frozen: {self.frozen}, tied: {self.tied}")
        lines.append(f"buffers = {self.buffers}")
        for number, texts in zip(self.numbers, self.writes, strict=True):
            lines += [*texts, f"module({', '.join((*self.arguments, str(number)))})"]
        return "\n".join(lines)


@dataclass(slots=True)
class Run:
    """State of a module between its calls, and the names that texts of writes may use."""

    drawn: ModuleProgram
    module: nn.Module
    call: Callable[..., Any]
    scope: dict[str, Any]

    @staticmethod
    def of(drawn: ModuleProgram, compile_: Compile) -> Run:
        """Build a fresh module, whose forward and writers are compiled by ``compile_``."""
        module = _module(drawn)
        given = {
            each.name: tensor.detach()
            for each, tensor in zip(drawn.program.inputs, drawn.program.arguments().inputs, strict=True)
        }
        for name in drawn.parameters:
            module.register_parameter(name, nn.Parameter(given[name], _wants_gradient(drawn, name, given)))
        for name in drawn.buffers:
            module.register_buffer(name, given[name])
        for name in drawn.tied:
            module.register_parameter(f"{name}_too", getattr(module, name))
        scope: dict[str, Any] = {
            "torch": torch, "numpy": numpy, "m": module, "aside": _aside, "compiled": compile_, "fill": filled,
            **{name: given[name] for name in drawn.arguments},
        }  # fmt: skip
        if drawn.program.mode == "grad" and any(p.requires_grad for p in module.parameters()):
            scope["optimizer"] = torch.optim.SGD(module.parameters(), lr=0.5)
        return Run(drawn, module, compile_(module), scope)

    def step(self, position: int) -> list[Any]:
        """Apply the writes before this call, call, and return everything observable afterwards."""
        NOTED.clear()
        for text in self.drawn.writes[position]:
            exec(text, self.scope)
        arguments = [self.scope[name] for name in self.drawn.arguments]
        results = self.call(*arguments, self.drawn.numbers[position])
        seen = [each.detach().clone() if isinstance(each, Tensor) else each for each in results]
        strides = [_steps(each) if isinstance(each, Tensor) else None for each in results]
        wanting = [r for r in results if isinstance(r, Tensor) and r.requires_grad]
        parameters = list(self.module.parameters())
        if wanting:
            for each in parameters:
                each.grad = None
            total: Any = sum((r.abs() if r.is_complex() else r).double().sum() for r in wanting)
            total.backward()
        for each in (*arguments, *self.module.buffers()):
            each.detach_()
        after = [each.detach().clone() for each in (*arguments, *self.module.buffers(), *parameters)]
        gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
        notes = [(number, told) for number, told in NOTED]
        return [
            *seen,
            strides,
            [r.requires_grad for r in results if isinstance(r, Tensor)],
            after,
            gradients,
            notes,
        ]


def _steps(tensor: Tensor) -> list[int] | None:
    """Return the strides of dimensions of more than one element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1] if tensor.numel() else None


KEEPS_STRIDES = TorchVersion(torch.__version__) < "2.13"
"""True before torch 2.13, whose Dynamo does not guard the strides of a module's tensors that get other memory in
place."""


def filled(tensor: Tensor, seed: int) -> Tensor:
    """Return small integers in the shape and dtype of a tensor, and in its strides where they differ from the
    default."""
    from_seed = torch.Generator(tensor.device).manual_seed(seed)
    low = 0 if tensor.dtype in (torch.bool, torch.uint8) else -6
    numbers = torch.randint(
        low, 2 if tensor.dtype == torch.bool else 7, tensor.shape, generator=from_seed, device=tensor.device
    )
    if KEEPS_STRIDES and torch._debug_has_internal_overlap(tensor) != 1:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(numbers)
    return numbers.to(tensor.dtype)


def _aside(write: Callable[[], object]) -> None:
    """Apply a write in another thread."""
    inference = torch.is_inference_mode_enabled()

    def run() -> None:
        with torch.inference_mode() if inference else torch.no_grad():
            write()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def _wants_gradient(drawn: ModuleProgram, name: str, given: dict[str, Tensor]) -> bool:
    return name not in drawn.frozen and is_inexact(given[name].dtype)


def _module(drawn: ModuleProgram) -> nn.Module:
    text, file = drawn.source(), "<drawn module>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"torch": torch, "F": nn.functional}
    exec(compile(text, file, "exec"), namespace)
    made: nn.Module = type("Drawn", (nn.Module,), {"forward": namespace["forward"]})()
    return made


# --- drawing --------------------------------------------------------------------------------------------


def module_of(seed: int) -> ModuleProgram:
    """Return the module program of a seed: always the same one."""
    return draw_module(random.Random(seed).randint)


@strategies.composite
def module_programs(draw: strategies.DrawFn) -> ModuleProgram:
    """Strategy of module programs that Hypothesis draws and shrinks."""
    return draw_module(lambda low, high: draw(strategies.integers(low, high)))


def draw_module(choose: Choose) -> ModuleProgram:
    """Generate a module from a drawn program, and writes between its calls."""
    program = generate(choose, DTYPES, MODULE_FAMILIES)
    scope = Scope(choose)
    if program.mode == "plain":
        program = replace(program, mode=scope.one(("no_grad", "inference", "grad")))
    written = _written(program)
    alone = [i.name for i in program.inputs if sum(other.base == i.base for other in program.inputs) == 1]
    dtypes = {i.name: next(b.dtype for b in program.bases if b.name == i.base) for i in program.inputs}
    parameters = tuple(n for n in alone if n not in written and scope.chance(60))
    buffers = tuple(n for n in alone if n not in parameters and scope.chance(40))
    numeric = [n for n in parameters if is_inexact(dtypes[n])]
    drawn = ModuleProgram(
        program, parameters, buffers,
        frozen=tuple(n for n in parameters if scope.chance(20)),
        tied=tuple(n for n in numeric if scope.chance(25)),
        writes=((),) * CALLS,
        numbers=tuple(scope.one((2, 2, 3, 5)) for _ in range(CALLS)),
    )  # fmt: skip
    between = [tuple(_writes(scope, drawn, written, dtypes)) for _ in range(CALLS - 1)]
    return replace(drawn, writes=((), *between))


def _written(program: Program) -> set[str]:
    """Return the inputs that a program may write to: those whose memory one of its statements overwrites."""
    sources_of = {each.name: {each.name} for each in program.inputs}
    found: set[str] = set()
    for statement in program.statements:
        used = {n for n in sources_of if re.search(rf"\b{n}\b", statement.text)}
        sources = {source for name in used for source in sources_of[name]}
        if statement.target:
            sources_of[statement.target] = sources
        if statement.writes:
            found |= sources_of[statement.writes]
    bases = {each.name: each.base for each in program.inputs}
    shared = {bases[name] for name in found}
    return {each.name for each in program.inputs if each.base in shared}


def _writes(
    scope: Scope, drawn: ModuleProgram, written: set[str], dtypes: dict[str, torch.dtype]
) -> Iterator[str]:
    """Draw writes to some of the module's tensors and arguments, and to all that the module itself writes, so that
    values stay small."""
    decides = any(DECIDES.search(each.text) for each in drawn.program.statements)
    graded = [n for n in drawn.parameters if n not in drawn.frozen and is_inexact(dtypes[n])]
    if drawn.program.mode == "grad" and graded and not decides and scope.chance(40):
        yield "optimizer.step()"
    for item in drawn.program.inputs:
        if item.name in written or scope.chance(50):
            own = item.name in drawn.parameters or item.name in drawn.buffers
            yield _write(
                scope, item.name, own, item.name in written or not all(item.shape or (0,)), dtypes[item.name]
            )


def _write(scope: Scope, name: str, own: bool, whole: bool, dtype: torch.dtype) -> str:
    """Draw one write: of all elements where ``whole``, else perhaps of one."""
    target, seed = f"m.{name}" if own else name, scope.choose(1, 99)
    data, other = f"{target}.data", f"fill({target}, {seed})"
    texts = [
        f"{data}.copy_({other})",
        f"with torch.no_grad(): {target}.copy_({other})",
        f"with torch.no_grad(): torch.mul({other}, {other}, out={target})",
        f"with torch.no_grad(): {target}.set_({other})",
        f"aside(lambda: {target}.copy_({other}))",
        f"with torch.no_grad(): compiled(lambda t, o: t.copy_(o))({target}, {other})",
    ]
    if dtype != torch.bfloat16:
        texts += [f"{target}.detach().numpy()[...] = {other}.numpy()"] * 2
    if own:
        texts.append(f"m.load_state_dict({{**m.state_dict(), {name!r}: {other}}})")
        texts.append(f"{data} = {other}")
    if not whole:
        texts += [
            f"{data}[..., :1] = 1",
            f"with torch.no_grad(): {target}[..., -1:] = 0",
            f"with torch.no_grad(): compiled(lambda t: t[..., :1].fill_(1))({target})",
        ]
        if dtype != torch.bfloat16:
            texts += [f"{target}.detach().numpy()[..., -1:] = 1"] * 2
    return scope.one(texts)


@contextlib.contextmanager
def surroundings(drawn: ModuleProgram) -> Iterator[None]:
    """Set the grad mode in which a module is built, written and called."""
    with drawn.program.surroundings():
        yield


def smaller_modules(drawn: ModuleProgram) -> Iterator[ModuleProgram]:
    """Yield module programs that are one step simpler, the largest steps first."""
    count = len(drawn.program.statements)
    defined = [each.target for each in drawn.program.statements]
    for k in reversed(range(count)):
        later = " ".join((*(s.text for s in drawn.program.statements[k + 1 :]), *drawn.program.outputs))
        if defined[k] is None or not re.search(rf"\b{defined[k]}\b", later):
            yield drawn.without({k})
        else:
            base = re.split(r"[.\[ ]", drawn.program.statements[k].text)[0]
            if base.isalnum() and base != drawn.program.statements[k].text:
                same = list(drawn.program.statements)
                same[k] = Statement(base, target=defined[k])
                yield replace(drawn, program=replace(drawn.program, statements=tuple(same)))
    outputs = drawn.program.outputs
    for k in range(len(outputs) if len(outputs) > 1 else 0):
        yield replace(drawn, program=replace(drawn.program, outputs=outputs[:k] + outputs[k + 1 :]))
    if drawn.program.dynamic:
        yield replace(drawn, program=replace(drawn.program, dynamic=False))
    for call, texts in enumerate(drawn.writes):
        for k in range(len(texts)):
            fewer = (*drawn.writes[:call], texts[:k] + texts[k + 1 :], *drawn.writes[call + 1 :])
            yield replace(drawn, writes=fewer)
    for name in drawn.tied:
        yield replace(drawn, tied=tuple(each for each in drawn.tied if each != name))
