"""The function of a foreach kernel, which maps a program id to a subkernel, an invocation and a tile of it.

Each subkernel is one function, called with the buffers and sizes of the invocation, which a binary search over program
ids finds by a few comparisons, uniform over the threads of a CTA. Facts about the alignment of addresses and sizes
survive it, so that accesses are vectorised as in a launch of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from litz_codegen_triton.emit.indexing.grid import subkernel_grids
from litz_codegen_triton.emit.indexing.index import IndexTerms
from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.loops.tiles import Tiling
from litz_codegen_triton.emit.source.text import CodeWriter, EmittedValue
from litz_ir.errors import CodegenError
from litz_ir.plan import Foreach, Invocation, Kernel, Subkernel
from litz_ir.scalar import Indirect
from litz_ir.symbols import Size, add


def dispatch(
    kernel: Kernel, schedule: Foreach, tilings: tuple[Tiling, ...], functions: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the arguments and the lines of a foreach kernel's function.

    ``functions`` names the function of each subkernel. Raises ``CodegenError`` for a size that is read from memory.
    """
    return _Dispatch(kernel, schedule, tilings, functions).write()


class _Dispatch:
    """Writes the function of a foreach kernel."""

    def __init__(
        self, kernel: Kernel, schedule: Foreach, tilings: tuple[Tiling, ...], functions: Sequence[str]
    ) -> None:
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
        self.index = IndexTerms(Masks(writer, ()), ranges, schedule.index_bits == 32, _loaded)
        kinds = {info.name: info.kind for info in kernel.symbols}
        self.kinds: Mapping[str, str] = kinds

    def write(self) -> tuple[list[str], list[str]]:
        """Return the arguments and the lines."""
        for info in self.kernel.symbols:
            name = self.symbols[info.name]
            self.index.symbols[info.name] = EmittedValue(name)
            if info.kind != "float":
                self.writer.line(f"{name} = {name}.to({self.index.type})")
        self.writer.line("program = tl.program_id(0)")
        ends = [self.index.unit(end).text for end in self.ends]
        calls: list[list[str]] = []
        bounds: list[str] = ["0"]
        first = 0
        for subkernel, function in zip(self.kernel.subkernels, self.functions, strict=True):
            last = first + len(subkernel.invocations)
            calls.append(list(self._call(subkernel, function, ends[first : last + 1])))
            bounds.append(ends[last])
            first = last
        lines = [*self.writer.scopes[0].lines, *_choice(calls, bounds)]
        return [*self.pointers.values(), *self.symbols.values()], lines

    def _call(self, subkernel: Subkernel, function: str, ends: Sequence[str]) -> Iterator[str]:
        """Yield the lines that choose the arguments of the program's invocation and call the subkernel's function."""
        kernel = subkernel.kernel
        targets = ["first", *(p.name for p in kernel.parameters), *(s.name for s in kernel.symbols)]
        values = [
            [self._number(end), *self._arguments(each)] for end, each in zip(ends, subkernel.invocations)
        ]
        # Arguments that all invocations share need no choice. Names are prefixed, since branches share one scope.
        same = [len({row[k] for row in values}) == 1 for k in range(len(targets))]
        names = [f"{kernel.name}_{target}" for target in targets]
        rows = [
            [f"{name} = {value}" for name, value, fixed in zip(names, row, same) if not fixed]
            for row in values
        ]
        yield from _choice(rows, ends)
        first, *others = (row if fixed else name for name, row, fixed in zip(names, values[0], same))
        if same[0]:
            first = ends[0]
        program = "program" if first == "0" else f"program - {first}"
        yield f"{function}({', '.join([program, *others])})"

    def _arguments(self, invocation: Invocation) -> Iterator[str]:
        """Yield the arguments of an invocation: its buffers, then its sizes."""
        for name in invocation.buffers:
            yield self.pointers[name]
        for term in invocation.symbols:
            if self.kinds.get(str(term)) == "float":
                yield self.symbols[str(term)]
            else:
                yield self._number(self.index.unit(term).text)

    def _number(self, text: str) -> str:
        """Write a literal as a scalar tensor, so that all branches of a choice give a variable the same type."""
        return f"tl.full([], {text}, {self.index.type})" if text.isdecimal() else text


def _choice(choices: Sequence[Sequence[str]], ends: Sequence[str]) -> list[str]:
    """Return nested ``if`` statements that run the choice of the program id: the ``k``-th begins at ``ends[k]``."""
    if len(choices) == 1:
        return list(choices[0])
    middle = len(choices) // 2
    before = _choice(choices[:middle], ends[: middle + 1])
    after = _choice(choices[middle:], ends[middle:])
    if not before:
        return []
    indented = ["    " + line for line in before], ["    " + line for line in after]
    return [f"if program < {ends[middle]}:", *indented[0], "else:", *indented[1]]


def _loaded(atom: Indirect) -> EmittedValue:
    """Refuse a size that is read from memory."""
    raise CodegenError("a size in a foreach kernel is read from memory", hint="define it as a symbol")
