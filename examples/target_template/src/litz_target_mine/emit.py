"""Kernels as functions of the language: a loop nest for each phase, inside the loops over the outer axes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from itertools import count

from litz_ir.dtypes import DType, i64
from litz_ir.errors import CodegenError
from litz_ir.faults import FAULTS
from litz_ir.loops import Axis, UserCombiner
from litz_ir.plan import Accumulate, Kernel, Phase, ScanStore, Statement, Store, with_user_combiners
from litz_ir.scalar import Checked, Const, Expr, Index, Indirect, Load, Masked, Op, Param, Scalar
from litz_ir.symbols import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol
from litz_target_mine import language as to


class Writer:
    """Writer of one kernel, whose function returns 0, or an error code as soon as a check fails."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = with_user_combiners(kernel, ())
        self.lines: list[str] = []
        self.indent = ""
        self.numbers = count()
        self.buffers = {each.name: self.fresh("b") for each in kernel.parameters}
        self.integers = {each.name: self.fresh("n") for each in kernel.symbols}
        self.scalars = dict(self.integers)
        self.params: Sequence[str] = ()
        self.known: ChainMap[Expr | Indirect, str] = ChainMap()  # what has a variable in the open scopes

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append(self.indent + text)

    def fresh(self, prefix: str) -> str:
        """Return a new name."""
        return f"{prefix}{next(self.numbers)}"

    def variable(self, dtype: DType, value: str) -> str:
        """Declare a variable and return its name."""
        name = self.fresh("t")
        self.line(to.DECLARE.format(name, to.TYPES[dtype], value))
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open a block; values computed in it are forgotten at its end."""
        self.line(head)
        self.indent, self.known = self.indent + "    ", self.known.new_child()
        yield
        self.indent, self.known = self.indent[4:], self.known.parents
        self.line(to.END)

    @contextmanager
    def loops(self, axes: Sequence[Axis]) -> Iterator[None]:
        """Open a loop nest."""
        with ExitStack() as nest:
            for axis in axes:
                self.integers[axis.name] = name = self.fresh("i")
                nest.enter_context(self.block(to.LOOP.format(name, self.term(axis.size))))
            yield

    def fail_if(self, condition: str, fault: str) -> None:
        """End the function with an error code where a condition holds."""
        with self.block(to.IF.format(condition)):
            self.line(to.RETURN.format(FAULTS[fault].code))

    # --- statements -------------------------------------------------------------------------------------------------

    def function(self, name: str) -> str:
        """Return the text of the kernel."""
        buffers = [to.BUFFER.format(self.buffers[p.name], to.TYPES[p.dtype]) for p in self.kernel.parameters]
        numbers = [to.NUMBERS[info.kind].format(self.integers[info.name]) for info in self.kernel.symbols]
        with self.block(to.FUNCTION.format(name, ", ".join(buffers + numbers))):
            with self.loops(self.kernel.outer):
                for array in self.kernel.scratch:
                    self.buffers[array.name] = name = self.fresh("s")
                    self.line(to.ARRAY.format(name, to.TYPES[array.dtype], self.term(array.size)))
                for phase in self.kernel.phases:
                    self.phase(phase)
            self.line(to.RETURN.format(0))
        return "\n".join([*filter(str.strip, self.lines), ""])

    def phase(self, phase: Phase) -> None:
        """Write a loop nest: accumulators before it, the results that later phases read after it."""
        self.known = self.known.new_child()
        states = self.start(phase, Accumulate)
        with self.loops(phase.axes[:-1]):
            states |= self.start(phase, ScanStore)
            with self.loops(phase.axes[-1:]):
                self.point(phase, states)
        self.known = self.known.parents
        for each in phase.statements:
            if isinstance(each, Accumulate):
                found = self.merged(_combiner(each).finish, states[each])
                self.scalars.update((name, text) for (name, _), text in zip(each.results, found))

    def point(self, phase: Phase, states: Mapping[Statement, list[str]]) -> None:
        """Write all statements at one point: stores come after all loads."""
        stores: list[tuple[str, str]] = []
        for each in phase.statements:
            if isinstance(each, Store):
                element, value = self.element(each.buffer, each.offset), self.value(each.value)
                if each.mode != "set":
                    name = {"min": "minimum", "max": "maximum"}.get(each.mode, each.mode)
                    value = to.operation(name, (element, value), each.value.dtype)
                stores.append((element, value))
                continue
            names, values = states[each], [self.value(value) for value in each.values]
            for name, value in zip(names, self.merged(_combiner(each).body, (*names, *values))):
                self.line(to.ASSIGN.format(name, value))
            if isinstance(each, ScanStore):
                found = self.merged(_combiner(each).finish, names)
                stores += [(self.element(*target), text) for target, text in zip(each.targets, found)]
        for element, value in stores:
            self.line(to.ASSIGN.format(element, value))

    def start(self, phase: Phase, kind: type[Accumulate | ScanStore]) -> dict[Statement, list[str]]:
        """Declare the accumulators of statements of a kind."""
        states: dict[Statement, list[str]] = {}
        for each in phase.statements:
            if isinstance(each, kind):
                states[each] = [self.variable(v.dtype, self.value(v)) for v in _combiner(each).identity]
        return states

    def merged(self, bodies: Sequence[Expr], params: Sequence[str]) -> list[str]:
        """Return values in which ``Param`` nodes stand for these names."""
        self.params, self.known = params, self.known.new_child()
        found = [self.value(each) for each in bodies]
        self.known = self.known.parents
        return found

    # --- expressions ------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> str:
        """Return the name of a value, computed here if no open scope has it."""
        if expr not in self.known:
            self.known[expr] = self.define(expr)
        return self.known[expr]

    def define(self, expr: Expr) -> str:
        """Return the name of a value that is computed here."""
        match expr:
            case Const():
                return to.literal(expr.value, expr.dtype)
            case Param():
                text = self.params[expr.position]  # copied: accumulators change one by one
            case Scalar():
                text = self.scalars[expr.name]
            case Index():
                text = self.term(expr.term)
            case Load():
                text = self.element(expr.buffer, expr.index[0])
            case Op():
                text = to.operation(expr.name, [self.value(each) for each in expr.args], expr.dtype)
            case Masked():
                name = self.variable(expr.dtype, self.value(expr.other))
                with self.block(to.IF.format(self.value(expr.cond))):
                    self.line(to.ASSIGN.format(name, self.value(expr.body)))
                return name
            case Checked():
                self.fail_if(f"{self.value(expr.cond)} == 0", expr.fault)
                return self.value(expr.body)
        return self.variable(expr.dtype, text)

    def element(self, buffer: str, offset: Size) -> str:
        """Return an element of a buffer or of a scratch array."""
        return to.ELEMENT.format(self.buffers[buffer], self.term(offset))

    def term(self, size: Size) -> str:
        """Return the integer that an index term stands for."""
        match size:
            case int():
                return str(size)
            case Symbol():
                return self.integers[size.name]
            case Sum():
                parts = [self.term(term) + (f" * {by}" if by != 1 else "") for term, by in size.terms]
                return " + ".join(parts + [str(size.constant)] * bool(size.constant))
            case Product():
                return " * ".join(map(self.operand, size.factors))
            case FloorDiv() | Mod():
                args: tuple[Size, ...] = (size.dividend, size.divisor)
            case Min() | Max():
                args = size.args
            case Indirect():
                return self.indirect(size)
        return reduce(to.TERMS[type(size).__name__].format, map(self.operand, args))

    def operand(self, size: Size) -> str:
        """Return an index term as an operand."""
        return f"({self.term(size)})" if isinstance(size, Sum | Product) else self.term(size)

    def indirect(self, atom: Indirect) -> str:
        """Return an index that is loaded, after its bounds check."""
        if atom not in self.known:
            name, limit = self.variable(i64, self.value(atom.value)), self.operand(atom.size)
            if atom.wrap:
                wrapped = to.OPERATIONS["where"].format(f"{name} < 0", f"{name} + {limit}", name)
                name = self.variable(i64, wrapped)
            if atom.check == "clamped":
                least = to.TERMS["Min"].format(name, f"{limit} - 1")
                name = self.variable(i64, to.TERMS["Max"].format(least, 0))
            if atom.check == "raised":
                self.fail_if(f"{name} < 0", atom.fault)
                self.fail_if(f"{name} >= {limit}", atom.fault)
            self.known[atom] = name
        return self.known[atom]


def _combiner(statement: Accumulate | ScanStore) -> UserCombiner:
    """Return the definition of a combiner; raises :class:`CodegenError` for a sort, which has none."""
    if not isinstance(statement.combiner, UserCombiner):
        raise CodegenError(f"{to.NAME} has no spelling for {statement.combiner.name}")
    return statement.combiner
