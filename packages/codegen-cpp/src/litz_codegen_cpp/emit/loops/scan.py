"""Scans in C++: a running combination along the last axis of a phase, stored after every point."""

from __future__ import annotations

from typing import Protocol

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.loops.reduction import STATE_CLASSES, accumulator, state_dtype
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_codegen_cpp.emit.source.spelling import vector_type
from litz_ir.dtypes import DType
from litz_ir.loops import NamedCombiner, UserCombiner
from litz_ir.plan import ScanStore
from litz_ir.scalar import HEAVY, OPS, Expr, Op, Param, walk


def scans_lanes(statement: ScanStore) -> bool:
    """Return True when the lanes of a vector can be consecutive points of the scan.

    A combiner with an expensive function is cheaper once for each point than once for each step of a vector's lanes.
    """
    match statement.combiner:
        case NamedCombiner() as named:
            row = STATE_CLASSES.get(named.name)
            return row is not None and bool(row.scan)
        case UserCombiner() as given:
            return not any(isinstance(e, Op) and OPS[e.name].cost > HEAVY for e in walk(*given.body))


class _Scan(Protocol):
    """A running combination, in order of the points."""

    def declare(self) -> None:
        """Declare the state, at the innermost scope."""

    def add(self, values: tuple[Expr, ...]) -> None:
        """Combine one more element, or those of all registers."""

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        """Return the running results at the elements that were added last."""


class ScanWriter:
    """Writes a ``ScanStore`` statement; its state is declared anew before every run of the last axis.

    With ``across`` lanes are different outer points; with ``along``, the name of the scanned axis, they are points of
    the scan; with neither there are scalars.
    """

    def __init__(
        self, body: ExpressionEmitter, statement: ScanStore, *, across: bool, along: str | None
    ) -> None:
        self.body = body
        self.statement = statement
        self.across = across
        self.along = along
        self.running: _Scan | None = None

    def start(self) -> None:
        """Declare the state, at the innermost scope."""
        self.running = self._scan()
        self.running.declare()

    def _scan(self) -> _Scan:
        combiner, values = self.statement.combiner, self.statement.values
        if self.along is None:
            registers = self.body.context.registers if self.across else 1
            return accumulator(
                self.body,
                combiner,
                values,
                registers=registers,
                across=self.across,
                along=False,
                scan=True,
            )
        if isinstance(combiner, UserCombiner):
            return _UserLaneScan(self.body, combiner, self.along)
        return _NamedLaneScan(self.body, combiner, values)

    def step(self) -> None:
        """Combine one more element."""
        assert self.running is not None
        self.running.add(self.statement.values)

    def store(self) -> None:
        """Store the running results."""
        assert self.running is not None
        results = self.running.results(tuple(self._dtype(buffer) for buffer, _ in self.statement.targets))
        for (buffer, offset), value in zip(self.statement.targets, results):
            self.body.memory.store(buffer, offset, value)

    def _dtype(self, buffer: str) -> DType:
        return self.body.context.buffers[buffer].dtype


class _NamedLaneScan:
    """A scan of lanes by an operation of ``scan.h``; one object scans the registers one after another."""

    def __init__(self, body: ExpressionEmitter, combiner: NamedCombiner, values: tuple[Expr, ...]) -> None:
        row = STATE_CLASSES[combiner.name]
        self.body = body
        self.stem = combiner.name
        self.dtype = state_dtype(combiner, row, tuple(value.dtype for value in values), True)
        self.operation = row.scan_of_bools if self.dtype.is_bool and row.scan_of_bools else row.scan
        self.name = ""
        self.value: CppValue | None = None
        body.headers.add("scan")

    def declare(self) -> None:
        context = self.body.context
        self.name = context.names.fresh("running")
        context.scopes.line(f"running<{self.operation}, {vector_type(self.dtype)}> {self.name};")

    def add(self, values: tuple[Expr, ...]) -> None:
        context = self.body.context
        operand = context.spread(self.body.converted(self.body.value(values[0]), self.dtype))
        texts = tuple(f"{self.name}.next({operand.register(k)})" for k in range(context.registers))
        self.value = context.define(self.stem, texts, self.dtype, context.scopes.top, varying=True)

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        assert self.value is not None
        return [self.body.converted(self.value, dtype) for dtype in dtypes]


class _UserLaneScan:
    """A scan of lanes by a user-given combiner, as a function of the text that combines vectors of states."""

    def __init__(self, body: ExpressionEmitter, combiner: UserCombiner, axis: str) -> None:
        self.body = body
        self.combiner = combiner
        self.axis = axis
        self.dtypes = tuple(identity.dtype for identity in combiner.identity)
        self.combine = ""
        self.identities: list[str] = []
        self.running: list[str] = []
        self.states: list[tuple[str, ...]] = []
        body.headers.add("scan")

    def declare(self) -> None:
        context = self.body.context
        identities = [context.spread(self.body.value(each)) for each in self.combiner.identity]
        self.identities = [each.register(0) for each in identities]
        self._declare_combine()
        self.running = []
        for dtype, text in zip(self.dtypes, self.identities):
            name = context.names.fresh("running")
            context.scopes.line(f"{vector_type(dtype)} {name} = {text};")
            self.running.append(name)

    def _declare_combine(self) -> None:
        """Declare the function that combines the states of two vectors into a third, which may be one of them."""
        context, count = self.body.context, len(self.dtypes)
        fresh = context.names.fresh
        parameters = [fresh("before") for _ in self.dtypes] + [fresh("next") for _ in self.dtypes]
        outputs = [fresh("combined") for _ in self.dtypes]
        kinds = [vector_type(dtype) for dtype in self.dtypes]
        signature = [f"{kind} {name}" for kind, name in zip((*kinds, *kinds), parameters)]
        signature += [f"{kind}& {name}" for kind, name in zip(kinds, outputs)]
        self.combine = fresh("combine")
        opening = f"const auto {self.combine} = [&]({', '.join(signature)}) LITZ_INLINE {{"
        with context.scopes.block(opening, "block", closing="};"), context.vectorised(self.axis, 1):
            top = context.scopes.top
            for position, name in enumerate(parameters):
                dtype = self.dtypes[position % count]
                context.scopes.remember(Param(position, dtype), CppValue((name,), dtype, top, True))
            found = [context.spread(self.body.value(expr)) for expr in self.combiner.body]
            for name, value in zip(outputs, found):
                context.scopes.line(f"{name} = {value.register(0)};")

    def add(self, values: tuple[Expr, ...]) -> None:
        context = self.body.context
        line, fresh = context.scopes.line, context.names.fresh
        elements = [context.spread(self.body.value(value)) for value in values]
        states = []
        for number in range(context.registers):
            names = tuple(fresh("state") for _ in self.dtypes)
            for name, dtype, element in zip(names, self.dtypes, elements):
                line(f"{vector_type(dtype)} {name} = {element.register(number)};")
            own = ", ".join(names)
            behind = ", ".join(
                f"lanes_behind<decltype(by)::lanes>({identity}, {name})"
                for identity, name in zip(self.identities, names)
            )
            line(f"scan_steps([&](auto by) LITZ_INLINE {{ {self.combine}({behind}, {own}, {own}); }});")
            line(f"{self.combine}({', '.join(self.running)}, {own}, {own});")
            for running, name in zip(self.running, names):
                line(f"{running} = last_lane({name});")
            states.append(names)
        self.states = states

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        context = self.body.context
        top = context.scopes.top
        with context.scopes.under(context.scopes.active, conditional=False):
            inner = context.scopes.top
            for position, dtype in enumerate(self.dtypes):
                registers = tuple(names[position] for names in self.states)
                context.scopes.remember(
                    Param(position, dtype), CppValue(registers, dtype, inner, varying=True)
                )
            found = [self.body.converted(self.body.value(e), d) for e, d in zip(self.combiner.finish, dtypes)]
        return [value.within(top) for value in found]
