"""Generator of programs from a seed or from Hypothesis: a statement stays in a program if eager accepts it."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies

from differential.programs import Base, Input, Mode, Program, Statement, is_inexact
from differential.scope import Choose, Scope, storage_of
from differential.statements import KINDS, Kind, Proposal

FAMILIES = {"write": 40, "view": 26, "copy": 11, "pointwise": 9, "reduce": 8, "scatter": 8}
SIZES = (1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 9, 16, 17, 33)
DTYPES = (
    torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32,
    torch.bool, torch.uint8,
)  # fmt: skip
COMPLEX = (torch.complex64, torch.complex64, torch.complex64, torch.complex128, torch.float32, torch.bool)
"""Dtypes of the inputs of complex programs."""
MODES: tuple[Mode, ...] = ("plain",) * 9 + ("no_grad",) * 3 + ("inference",) * 3 + ("grad",) * 5
ATTEMPTS = 60
LARGEST = 20_000
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError)
IN_PLACE_VIEW = re.compile(r"squeeze_\(|transpose_\(|\.t_\(")
DECIDES = re.compile(r"amin|amax|minimum|maximum|relu|clamp|abs|sign_?\(")
"""Operations that select by value, at least in their gradient."""
COPIES = re.compile(r"\.(clone|flip|roll|sum)\(| [!=<>]=? ")


def program_of(seed: int, dtypes: Sequence[torch.dtype] = DTYPES) -> Program:
    """Return the program of a seed, whose inputs are of ``dtypes``: always the same one."""
    return generate(random.Random(seed).randint, dtypes)


@strategies.composite
def programs(draw: strategies.DrawFn) -> Program:
    """Strategy of programs that Hypothesis draws and shrinks."""
    return generate(lambda low, high: draw(strategies.integers(low, high)))


def generate(
    choose: Choose, dtypes: Sequence[torch.dtype] = DTYPES, families: Mapping[str, int] = FAMILIES
) -> Program:
    """Generate a program of up to a dozen statements of these ``families``, all of which eager accepts."""
    scope = Scope(choose)
    mode = scope.one(MODES)
    bases, inputs = _arguments(scope, mode, dtypes)
    blank = Program(bases, inputs, (), (), mode, dynamic=scope.chance(15))
    with blank.surroundings(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        growth = _Growth(scope, blank, families)
        growth.run(choose(4, 11))
    return Program(bases, inputs, tuple(growth.statements), growth.outputs(), mode, blank.dynamic)


# --- inputs ---------------------------------------------------------------------------------------------


def _arguments(
    scope: Scope, mode: Mode, dtypes: Sequence[torch.dtype]
) -> tuple[tuple[Base, ...], tuple[Input, ...]]:
    rank = scope.one((0, 1, 1, 2, 2, 2, 2, 3, 3, 4))
    shape = tuple(0 if scope.chance(2) else scope.one(SIZES) for _ in range(rank))
    if rank >= 2 and scope.chance(25):
        shape = (*shape[:-1], shape[-2])  # square: transposes of it fit
    while _size(shape) > LARGEST // 8:
        shape = tuple(size // 2 for size in shape)
    if scope.chance(3):
        shape = (*shape[:-1], 2000)[: max(len(shape), 1)] if _size(shape[:-1]) <= 8 else shape
    common = scope.one(dtypes)
    bases: list[Base] = []
    inputs: list[Input] = []
    aliased = mode != "grad" and scope.chance(30)
    for number in range(scope.one((1, 1, 2, 2, 2, 3))):
        dtype = common if scope.chance(65) else scope.one(dtypes)
        name = f"base{number}"
        shapes = [shape if scope.chance(65) else _related(scope, shape)]
        shapes += [_related(scope, shape) for _ in range(scope.one((0, 1, 1, 2)) if aliased else 0)]
        views = [_laid_out(scope, s) for s in shapes]
        size = max(reach for _, _, reach in views) + scope.one((0, 0, 0, 3))
        made: list[Input] = []
        for one, (strides, offset, reach) in zip(shapes, views):
            shift = scope.choose(0, size - reach) if len(views) > 1 and scope.chance(40) else 0
            made.append(Input(f"a{len(inputs) + len(made)}", name, one, strides, offset + shift))
        leaf = mode == "grad" and is_inexact(dtype) and len(made) == 1 and scope.chance(40)
        bases.append(Base(name, size, dtype, scope.choose(0, 9), leaf))
        inputs += made
    return tuple(bases), tuple(inputs)


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _related(scope: Scope, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that fits the common one: reversed, broadcast, a row of it."""
    how = scope.choose(0, 4)
    if how == 0:
        return tuple(reversed(shape))
    if how == 1:
        return shape[1:]
    if how == 2:
        return tuple(1 if scope.chance(50) else size for size in shape)
    return (_size(shape),) if how == 3 else shape


def _laid_out(scope: Scope, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Draw strides and an offset; return them with the number of elements that they span."""
    rank = len(shape)
    order = list(range(rank))
    if rank >= 2 and scope.chance(25):
        order[-1], order[-2] = order[-2], order[-1]
    gap = scope.one((0, 0, 0, 0, 1, 2))
    strides = [0] * rank
    step = scope.one((1, 1, 1, 1, 1, 2))
    for d in reversed(order):
        strides[d] = step
        step = step * max(shape[d], 1) + (gap if d == order[-1] else 0)
    offset = scope.one((0, 0, 0, 0, 1, 5))
    reach = offset + (1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0)
    return tuple(strides), offset, reach


# --- statements -----------------------------------------------------------------------------------------


class _Growth:
    """A program under construction, with the tensors that eager computed for it."""

    def __init__(self, scope: Scope, blank: Program, families: Mapping[str, int]) -> None:
        self.scope = scope
        self.statements: list[Statement] = []
        self.punned: set[int] = set()
        given = blank.arguments()
        scope.tensors.update((item.name, tensor) for item, tensor in zip(blank.inputs, given.inputs))
        self.inputs = tuple(scope.tensors)
        self.dynamic, self.mode = blank.dynamic, blank.mode
        # torch itself fails to give back views of arguments that alias one another.
        self.hidden = (
            {storage_of(t) for t in scope.tensors.values()} if len(blank.inputs) > len(blank.bases) else set()
        )
        self.kinds: dict[str, list[Kind]] = {family: [] for family in families}
        for family, weight, make in KINDS:
            if family in families:
                self.kinds[family] += [make] * weight
        self.families = [family for family, weight in families.items() for _ in range(weight)]

    def run(self, length: int) -> None:
        for _ in range(ATTEMPTS):
            if len(self.statements) == length:
                return
            make = self.scope.one(self.kinds[self.scope.one(self.families)])
            try:
                proposal = make(self.scope)
                if proposal is not None and not self._keep(proposal):
                    return
            except REFUSALS:  # eager takes no such line, or lets nobody read that tensor any more
                continue

    def outputs(self) -> tuple[str, ...]:
        """Draw some tensors of the program as its results, aliases and inputs among them."""
        scope = self.scope
        names = [n for n, t in scope.tensors.items() if is_inexact(t.dtype) or scope.is_exact(n)]
        names = [n for n in names if storage_of(scope[n]) not in self.hidden] or names
        later = [n for n in names if n not in self.inputs] or names
        return tuple(scope.one(later if scope.chance(80) else names) for _ in range(scope.choose(1, 6)))

    def _keep(self, proposal: Proposal) -> bool:
        """Run the statement in eager and keep it if eager accepts it. False: the program must end before it."""
        scope, statement = self.scope, proposal.statement
        used = [name for name in scope.tensors if re.search(rf"\b{name}\b", statement.text)]
        rough_reads = [name for name in used if not scope.is_exact(name)]
        if any(not is_inexact(scope[name].dtype) for name in rough_reads):
            return True
        if rough_reads and self.mode == "grad" and DECIDES.search(statement.text):
            return True
        if statement.writes in self.inputs and IN_PLACE_VIEW.search(statement.text):
            return True  # Dynamo has no form for it
        if (
            self.dynamic
            and statement.writes
            and any(scope[n].dtype == torch.bool for n in _indices(statement, scope))
        ):
            return True  # nor for a write whose extent is data under symbolic sizes
        rough = proposal.rough or bool(rough_reads)
        if statement.writes and not self._may_write(statement, used, rough):
            return True
        namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **scope.tensors}
        exec(statement.line, namespace)
        name = statement.target or statement.writes
        assert name is not None
        result = namespace[name]
        if result.numel() > LARGEST:
            return statement.target is not None
        storage_id = storage_of(result)
        if not rough and not _plain(result):
            if storage_id in self.punned:
                return False
            rough = True
        scope.tensors[name] = result
        if rough:
            scope.rough.add(storage_id)
        if any(
            scope[other].dtype != result.dtype and storage_of(scope[other]) == storage_id for other in used
        ):
            self.punned.add(storage_id)
        self.statements.append(statement)
        return True

    def _may_write(self, statement: Statement, used: list[str], rough: bool) -> bool:
        """Report that a write has a defined result: no element is written twice, or read at another position."""
        assert statement.writes is not None
        target = self.scope[statement.writes]
        storage_id = storage_of(target)
        if rough and (storage_id in self.punned or not is_inexact(target.dtype)):
            return False
        region = _region(statement, target)
        places = _places(region)
        if len(set(places)) != len(places):
            return False
        touched = set(places)
        for name in used:
            other = self.scope[name]
            if storage_of(other) != storage_id:
                continue
            for found in re.finditer(rf"\b{name}\b", statement.text[statement.text.find(name) + 1 :]):
                rest = statement.text[statement.text.find(name) + 1 :][found.end() :]
                if COPIES.match(rest) or (_same_place(other, region) and not rest.startswith(".")):
                    continue
                if touched & set(_places(other)):
                    return False
        return True


def _indices(statement: Statement, scope: Scope) -> list[str]:
    """Return the names in the subscript of an assignment."""
    found = re.match(r"\w+\[(.*)\] \S?= ", statement.text)
    return [] if found is None else [n for n in scope.tensors if re.search(rf"\b{n}\b", found[1])]


def _region(statement: Statement, target: torch.Tensor) -> torch.Tensor:
    """Return the elements that an assignment to a basic subscript writes, or the whole target."""
    found = re.match(r"\w+\[([^a-z]*)\] \S?= ", statement.text.replace("None", "..."))
    if found is None or "..." in found[1]:
        return target
    written: torch.Tensor = eval(f"target[{found[1]}]", {"target": target})
    return written


def _places(tensor: torch.Tensor) -> list[int]:
    """Return the byte offsets of the elements' starts in the storage, and those of all their further bytes."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride()):
        offsets = offsets.unsqueeze(-1).add(torch.arange(size).mul(int(stride)))
    width = tensor.element_size()
    starts = offsets.flatten().add(int(tensor.storage_offset())).mul(width)
    found: list[int] = (starts.unsqueeze(-1) + torch.arange(width)).flatten().tolist()
    return found


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()


def _plain(tensor: torch.Tensor) -> bool:
    """Report that sums of such numbers are exact: none is huge, tiny or not finite."""
    if not is_inexact(tensor.dtype) or tensor.numel() == 0:
        return True
    parts = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    size = parts.double().abs()
    most = 2.0**7 if tensor.dtype == torch.bfloat16 else 2.0**14
    return bool(((size == 0) | ((size >= 2.0**-14) & (size <= most))).all())
