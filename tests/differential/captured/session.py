"""Runs a captured program: builds its module, makes its calls, and keeps everything that can be observed."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import linecache
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from differential.captured.program import CapturedProgram, Mode

DRAWN = "differential.captured.drawn"
"""Name of the module in which the classes of the program at hand are."""
Compile = Callable[[nn.Module], Callable[..., Any]]


def filled(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return small integers as floats, of which sums and multiplications are exact."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (5 + seed % 3) + 3 * seed) % 9 - 4).float().reshape(shape)


def leaf(tensor: Tensor) -> Tensor:
    """Return a leaf that gradients flow to."""
    return tensor.detach().requires_grad_()


def seeded(module: nn.Module) -> None:
    """Fill the parameters of the module's layers with numbers that are the same in each run."""
    for name, parameter in module.named_parameters():
        if "." in name:
            with torch.no_grad():
                parameter.copy_(filled(tuple(parameter.shape), len(name)) / 4 + 0.25)


class Inner(nn.Module):
    """A submodule with state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, scale: float) -> Tensor:
        self.calls += 1
        return x * scale + self.calls


@dataclass
class Options:
    """An argument that programs read and write."""

    steps: int = 1
    scale: float = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations of one call by label; ``shared`` are the pairs of tensors in one memory, with distances in bytes."""

    values: tuple[tuple[str, Any], ...]
    structure: str
    shared: tuple[tuple[str, str, int], ...]


def run(program: CapturedProgram, compile_: Compile) -> list[Seen]:
    """Build the module, make the calls, and return what each showed. Exceptions are the caller's."""
    log: list[tuple[int, Tensor]] = []
    scope = sys.modules.setdefault(
        DRAWN, types.ModuleType(DRAWN)
    ).__dict__  # a saved function's class is found there
    scope |= {
        "torch": torch,
        "F": F,
        "nn": nn,
        "Tensor": Tensor,
        "NamedTuple": NamedTuple,
        "Any": Any,
        "functools": functools,
        "itertools": itertools,
        "collections": collections,
        "contextlib": contextlib,
        "dataclasses": dataclasses,
        "Options": Options,
        "checkpoint": checkpoint,
        "filled": filled,
        "leaf": leaf,
        "seeded": seeded,
        "Inner": Inner,
        "LOG": log,
        "HANDLES": [],
    }
    text, file = program.source(), f"<captured program {hash(program)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    module: nn.Module = scope["Drawn"]()
    scope["module"] = module
    trained = [p for p in module.parameters() if p.requires_grad]
    scope["optimizer"] = torch.optim.SGD(trained, lr=0.25, momentum=0.5)
    call: Callable[..., Any] | None = None if program.saved else compile_(module)
    seen = []
    for number, each in enumerate(program.calls):
        for line in each.before:
            exec(line, scope)
        torch.manual_seed(number)
        log.clear()
        with surroundings(each.mode):
            arguments = [eval(argument, scope) for argument in each.arguments]
            keywords = {name: eval(text, scope) for name, text in each.keywords}
            if call is None:
                call = loaded(module, [eval(text, scope) for text in each.arguments], compile_)
            results = call(*arguments, **keywords)
        given = [*arguments, *keywords.values()]
        seen.append(observed(module, given, results, each.mode, log))
    return seen


def loaded(module: nn.Module, example: list[Any], compile_: Compile) -> Callable[..., Any]:
    """Compile the module for these arguments ahead of time, write it to a file, and load that."""
    compiled: Any = compile_(module)
    eager: Callable[..., Any] = module
    if compiled is module:
        return eager
    ahead = compiled.forward.aot_compile((tuple(example), {}))
    again: Callable[..., Any]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        ahead.save_compiled_function(str(path))
        with open(path, "rb") as stored:
            again = torch.compiler.load_compiled_function(stored, f_globals=sys.modules[DRAWN].__dict__)
    return lambda *given: again(module, *given)


@contextlib.contextmanager
def surroundings(mode: Mode) -> Iterator[None]:
    """Set the grad mode and autocast around a call."""
    with contextlib.ExitStack() as stack:
        if mode.startswith("autocast"):
            stack.enter_context(torch.autocast(torch.get_default_device().type, torch.bfloat16))
        if mode.endswith("no_grad"):
            stack.enter_context(torch.no_grad())
        if mode == "inference":
            stack.enter_context(torch.inference_mode())
        yield


def observed(
    module: nn.Module, arguments: list[Any], results: Any, mode: Mode, log: list[tuple[int, Tensor]]
) -> Seen:
    """Return the results, and what the call and its backward left in arguments, module and log."""
    leaves, structure = pytree.tree_flatten(results)
    given, shape = pytree.tree_flatten(arguments)
    named: dict[str, Any] = {f"result {k}": each for k, each in enumerate(leaves)}
    named |= {f"argument {k}": each for k, each in enumerate(given)}
    shared = _shared({label: x for label, x in named.items() if isinstance(x, Tensor)})
    values = {label: _kept(x) for label, x in named.items()}
    wanted = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad and x.is_floating_point()]
    if wanted and not mode.endswith("no_grad") and mode != "inference":
        total: Any = sum((x.double() * (k + 1)).sum() for k, x in enumerate(wanted))
        total.backward()
    values |= {f"{name} after": _kept(x) for name, x in module.named_parameters()}
    values |= {f"{name} after": _kept(x) for name, x in module.named_buffers()}
    values |= {f"gradient of {name}": _gradient(x) for name, x in module.named_parameters()}
    values |= {
        f"gradient of argument {k}": _gradient(x)
        for k, x in enumerate(given)
        if isinstance(x, Tensor) and x.is_leaf
    }
    for name in ("k", "s", "training"):
        values[name] = getattr(module, name)
    last = module.last
    values["last"] = _kept(last) if isinstance(last, Tensor) else last
    values |= {f"noted {k}": _kept(x) for k, (_, x) in enumerate(log)}
    values["numbers noted"] = [number for number, _ in log]
    for name in ("seen", "count"):
        setattr(module, name, getattr(module, name).detach())
    return Seen(tuple(values.items()), f"{structure} {shape}", shared)


@dataclass(frozen=True, slots=True)
class Kept:
    """A copy of a tensor, with the properties that a copy loses."""

    tensor: Tensor
    strides: tuple[int, ...] | None
    requires_grad: bool


def _kept(value: Any) -> Any:
    """Return a copy of a tensor with its strides, those of dimensions of one element left out."""
    if not isinstance(value, Tensor):
        return value
    steps = tuple(s for n, s in zip(value.shape, value.stride(), strict=True) if n > 1)
    return Kept(value.detach().clone(), steps if value.numel() else None, value.requires_grad)


def _gradient(tensor: Tensor) -> Any:
    """Return a copy of a tensor's gradient. One of zeros is dropped: AOTAutograd makes it where eager has none, and an
    optimizer with momentum treats both differently."""
    if tensor.grad is not None and not tensor.grad.any():
        tensor.grad = None
    return None if tensor.grad is None else Kept(tensor.grad.detach().clone(), None, False)


def _shared(tensors: dict[str, Tensor]) -> tuple[tuple[str, str, int], ...]:
    """Return the pairs of results and arguments in one memory, and the bytes between their starts."""
    items = list(tensors.items())
    return tuple(
        (one, two, int(a.storage_offset()) * a.element_size() - int(b.storage_offset()) * b.element_size())
        for k, (one, a) in enumerate(items)
        for two, b in items[k + 1 :]
        if a.numel() and b.numel() and a.untyped_storage()._cdata == b.untyped_storage()._cdata
    )
