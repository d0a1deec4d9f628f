"""A pack's function: from a program's number to its loop, and to its place there.

Loops that are alike are one function, which is written once: for which of them a program works, and so on which
buffers and sizes, is found by a few comparisons, the same for all its threads. What is known of addresses and sizes
stays known, so that accesses are as wide as in a launch of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from litz_codegen_triton.emit.grid import subkernel_grids
from litz_codegen_triton.emit.index import IndexTerms, fits_narrow
from litz_codegen_triton.emit.mask import Masks
from litz_codegen_triton.emit.text import CodeWriter, EmittedValue
from litz_codegen_triton.emit.tiles import Tiling
from litz_ir.errors import CodegenError
from litz_ir.plan import Invocation, Kernel, Subkernel, invocations_of
from litz_ir.scalar import Indirect
from litz_ir.symbols import Size, add


def dispatch(
    kernel: Kernel, tilings: tuple[Tiling, ...], functions: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The arguments and the lines of a pack's function, which calls those of its parts by name."""
    return _Dispatch(kernel, tilings, functions).write()


class _Dispatch:
    def __init__(self, kernel: Kernel, tilings: tuple[Tiling, ...], functions: Sequence[str]) -> None:
        self.kernel = kernel
        self.functions = functions
        writer = self.writer = CodeWriter()
        for name in (kernel.name, "program", *functions):
            writer.names.fresh(name)
        self.pointers = {p.name: writer.names.fresh(f"{p.name}_ptr") for p in kernel.parameters}
        self.symbols = {info.name: writer.names.fresh(info.name) for info in kernel.symbols}
        self.ends: list[Size] = [0]
        for count in subkernel_grids(kernel, tilings):
            self.ends.append(add(self.ends[-1], count))
        ranges = {info.name: info.range for info in kernel.symbols if info.kind != "float"}
        kinds = {info.name: info.kind for info in kernel.symbols}
        given = [
            term
            for _, binding in invocations_of(kernel)
            for term in binding.symbols
            if kinds.get(str(term)) != "float"
        ]
        self.index = IndexTerms(Masks(writer, ()), ranges, fits_narrow((*self.ends, *given), ranges), _loaded)
        self.kinds: Mapping[str, str] = kinds

    def write(self) -> tuple[list[str], list[str]]:
        """Arguments and lines."""
        for info in self.kernel.symbols:
            name = self.symbols[info.name]
            self.index.symbols[info.name] = EmittedValue(name)
            if info.kind != "float":
                self.writer.line(f"{name} = {name}.to({self.index.type})")
        self.writer.line("program = tl.program_id(0)")
        ends = [self.index.unit(end).text for end in self.ends]
        calls: list[list[str]] = []
        bounds: list[str] = ["0"]
        at = 0
        for part, function in zip(self.kernel.subkernels, self.functions, strict=True):
            last = at + len(part.invocations)
            calls.append(list(self._called(part, function, ends[at : last + 1])))
            bounds.append(ends[last])
            at = last
        lines = [*self.writer.scopes[0].lines, *_chosen(calls, bounds)]
        return [*self.pointers.values(), *self.symbols.values()], lines

    def _called(self, part: Subkernel, function: str, ends: Sequence[str]) -> Iterator[str]:
        """The call of the function of loops that are alike, on what the program's loop has."""
        targets = ["first", *(p.name for p in part.kernel.parameters), *(s.name for s in part.kernel.symbols)]
        values = [[self._number(end), *self._given(part, each)] for end, each in zip(ends, part.invocations)]
        # What all of them have needs no choice, and branches that are not taken give names of their own.
        same = [len({row[k] for row in values}) == 1 for k in range(len(targets))]
        names = [f"{part.kernel.name}_{target}" for target in targets]
        rows = [
            [f"{name} = {value}" for name, value, fixed in zip(names, row, same) if not fixed]
            for row in values
        ]
        yield from _chosen(rows, ends)
        first, *others = (row if fixed else name for name, row, fixed in zip(names, values[0], same))
        if same[0]:
            first = ends[0]
        program = "program" if first == "0" else f"program - {first}"
        yield f"{function}({', '.join([program, *others])})"

    def _given(self, part: Subkernel, binding: Invocation) -> Iterator[str]:
        """A loop's arguments."""
        for name in binding.buffers:
            yield self.pointers[name]
        for term in binding.symbols:
            if self.kinds.get(str(term)) == "float":
                yield self.symbols[str(term)]
            else:
                yield self._number(self.index.unit(term).text)

    def _number(self, text: str) -> str:
        """A number, in the type that all its likes have."""
        return f"tl.full([], {text}, {self.index.type})" if text.isdecimal() else text


def _chosen(choices: Sequence[Sequence[str]], ends: Sequence[str]) -> list[str]:
    """The lines of the choice whose programs this one is among: those of the ``k``-th begin at ``ends[k]``."""
    if len(choices) == 1:
        return list(choices[0])
    middle = len(choices) // 2
    before = _chosen(choices[:middle], ends[: middle + 1])
    after = _chosen(choices[middle:], ends[middle:])
    if not before:
        return []
    indented = ["    " + line for line in before], ["    " + line for line in after]
    return [f"if program < {ends[middle]}:", *indented[0], "else:", *indented[1]]


def _loaded(atom: Indirect) -> EmittedValue:
    raise CodegenError("a size of a pack is read from memory", hint="define it as a symbol")
