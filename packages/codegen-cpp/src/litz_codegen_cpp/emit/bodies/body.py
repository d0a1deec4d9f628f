"""Loop bodies in C++: every distinct expression once, in the outermost scope that knows its operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from litz_codegen_cpp.emit.bodies.index import index_of
from litz_codegen_cpp.emit.bodies.lane_index import LaneIndices
from litz_codegen_cpp.emit.bodies.nested import nested_sum
from litz_codegen_cpp.emit.bodies.tables import looked_up
from litz_codegen_cpp.emit.bodies.traversal import leaves, touches_memory
from litz_codegen_cpp.emit.bodies.vector import MemoryEmitter
from litz_codegen_cpp.emit.source.casts import bitcast, cast
from litz_codegen_cpp.emit.source.context import Context
from litz_codegen_cpp.emit.source.ops_table import SPELLINGS
from litz_codegen_cpp.emit.source.scopes import ActiveLanes, CppValue, indented
from litz_codegen_cpp.emit.source.spelling import literal, memory_type, register_type, vector_type
from litz_ir.dtypes import DType, b1, bf16, compute_dtype, f32, i32, i64
from litz_ir.errors import CodegenError
from litz_ir.scalar import (
    Checked,
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
)  # fmt: skip
from litz_ir.symbols import Size, add, mul

_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS = frozenset(_MIRRORED)


class ExpressionEmitter(LaneIndices):
    """Emits expressions and the index terms in them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.memory = MemoryEmitter(context, self)
        self.headers: set[str] = set()

    def value(self, root: Expr) -> CppValue:
        """Return the value of an expression at the innermost scope."""
        known = self.context.scopes.find(root) or looked_up(self, root)
        for node in () if known else self._eager_order(root):
            self._node(node)
        return known or self._node(root)

    def _eager_order(self, root: Expr) -> Iterator[Expr]:
        """Yield expressions to evaluate, children before parents, without known and lazily evaluated ones.

        The body of a masked expression is lazy, and so is its other value where the condition is a branch. Indices
        are left out, since they are emitted on demand in the width needed.
        """
        seen: set[Expr] = set()
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                if not isinstance(node, Index):
                    yield node
            elif node not in seen and self.context.scopes.find(node) is None:
                seen.add(node)
                stack.append((node, True))
                children = () if isinstance(node, NestedReduction) else node.children
                if isinstance(node, Masked):
                    children = (node.cond, node.other) if self.may_vary(node.cond) else (node.cond,)
                stack.extend((child, False) for child in reversed(children))

    def to_store(self, root: Expr) -> CppValue:
        """Return the value of an expression to be stored in memory of its dtype, where low-precision floats are
        rounded anyway."""
        if (
            isinstance(root, Op)
            and root.name == "cast"
            and root.dtype.is_low_precision
            and compute_dtype(root.args[0].dtype) == f32
        ):
            return replace(self.value(root.args[0]), dtype=root.dtype)
        return self.value(root)

    def _node(self, expr: Expr) -> CppValue:
        """Return the value of an expression, emitted once."""
        found = self.context.scopes.find(expr)
        if found is not None:
            return found
        return self.context.scopes.remember(expr, self._emit(expr))

    def _emit(self, expr: Expr) -> CppValue:
        match expr:
            case Const():
                return CppValue((literal(expr.value, expr.dtype),), expr.dtype, 0)
            case Index():
                return self._index(expr.term)
            case Scalar():
                return self._scalar(expr)
            case Load():
                return self.memory.load(expr)
            case Op():
                return self._op(expr)
            case Masked():
                return self._masked(expr)
            case Checked():
                return self._checked(expr)
            case NestedReduction():
                return nested_sum(self, expr)
            case Param():
                raise CodegenError(
                    f"combiner parameter {expr.position} is outside a combiner", node=self.context.kernel.name
                )
        raise CodegenError(f"no C++ form for {expr!r}", node=self.context.kernel.name)

    # --- leaves ---------------------------------------------------------------------------------------------

    def _index(self, term: Size) -> CppValue:
        if self.varies(term):
            return self.per_lane(term)
        index = self.scalar(term)
        text = index.text if index.text.isidentifier() else f"int64_t({index.text})"
        return CppValue((text,), i64, index.scope_level, reads=index.reads)

    def _scalar(self, expr: Scalar) -> CppValue:
        found = self.context.scopes.find(("scalar", expr.name))
        if found is None:
            raise CodegenError(
                f"scalar {expr.name!r} is neither a symbol of the kernel nor an earlier phase's result",
                node=self.context.kernel.name,
            )
        return self.converted(found, expr.dtype)

    def converted(self, value: CppValue, dtype: DType) -> CppValue:
        """Return the value as another dtype."""
        if value.dtype == dtype:
            return value
        texts = tuple(cast(each, value.dtype, dtype) for each in value.registers)
        return self.context.define(
            "as", texts, dtype, value.scope_level, varying=value.varying, reads=value.reads
        )

    # --- operations -----------------------------------------------------------------------------------------

    def _op(self, expr: Op) -> CppValue:
        """Emit a scalar operation on every register of its operands."""
        narrow = self._small_index(expr)
        if narrow is not None:
            return narrow
        arguments = [self._node(arg) for arg in expr.args]
        varying = any(argument.varying for argument in arguments)
        if varying:
            if expr.name == "div" and expr.dtype == f32 and self._serves_many(arguments[1]):
                arguments[1] = self.context.divisor(arguments[1])
            arguments = [self.context.spread(argument) for argument in arguments]
        level = max((argument.scope_level for argument in arguments), default=0)
        reads = frozenset[str]().union(*(argument.reads for argument in arguments))
        count = max(len(argument.registers) for argument in arguments)
        if expr.name == "cast" and (expr.args[0].dtype, expr.dtype) == (f32, bf16) and count % 2 == 0:
            # The CPU converts two registers by one instruction.
            halves = arguments[0].registers
            rounded = [f"round_bf16_pair({a}, {b})" for a, b in zip(halves[::2], halves[1::2], strict=True)]
            return self.context.define_pairs("cast", rounded, bf16, level, reads)
        texts = tuple(
            self._spelled(expr, [argument.register(number) for argument in arguments], varying)
            for number in range(count)
        )
        if expr.name == "cast" and texts == arguments[0].registers:
            return replace(arguments[0], dtype=expr.dtype)
        return self.context.define(expr.name, texts, expr.dtype, level, varying=varying, reads=reads)

    def _serves_many(self, value: CppValue) -> bool:
        """Return True for a variable that is known outside the innermost loop."""
        return (
            not value.varying
            and value.scope_level < self.context.scopes.top
            and value.registers[0].isidentifier()
        )

    def _spelled(self, expr: Op, arguments: list[str], varying: bool) -> str:
        """Return the C++ text of an operation on one register."""
        source = expr.args[-1].dtype
        if expr.name == "cast":
            return cast(arguments[0], source, expr.dtype)
        if expr.name == "bitcast":
            return bitcast(arguments[0], source, expr.dtype, varying)
        row = SPELLINGS.get(expr.name)
        if row is None:
            raise CodegenError(f"no C++ spelling for {expr.name}", node=self.context.kernel.name)
        if row.header:
            self.headers.add(row.header)
        template = row.text
        if source.is_bool:
            template = (row.mask if varying else row.boolean) or template
        elif source.is_integer and row.integer:
            template = row.integer
        elif source.is_low_precision and row.narrow:
            return row.narrow.format(*arguments, N=source.name)
        text = template.format(*arguments, T=register_type(expr.dtype), M=memory_type(expr.dtype))
        if expr.dtype.is_low_precision and not row.exact:
            text = f"round_{expr.dtype.name}({text})"
        return text

    def _small_index(self, expr: Op) -> CppValue | None:
        """Compare or cast an index that fits 32 bits as ``i32``, which takes half as many registers as ``i64``."""
        if expr.name not in _COMPARISONS and (expr.name, expr.dtype) != ("cast", f32):
            return None
        if not any(isinstance(arg, Index) and self.varies(arg.term) for arg in expr.args):
            return None
        lanes = [self._small_lanes(arg) for arg in expr.args]
        values = [value for value in lanes if value is not None]
        if len(values) < len(lanes):
            return self._lane_numbers_compared(expr) if expr.name in _COMPARISONS else None
        level = max(value.scope_level for value in values)
        reads = frozenset[str]().union(*(value.reads for value in values))
        row = SPELLINGS[expr.name]
        count = max(len(value.registers) for value in values)
        texts = tuple(
            row.text.format(*(value.register(number) for value in values), T=register_type(expr.dtype))
            for number in range(count)
        )
        return self.context.define(expr.name, texts, expr.dtype, level, varying=True, reads=reads)

    def _lane_numbers_compared(self, expr: Op) -> CppValue | None:
        """Compare two indices whose difference grows by one per lane by the number of the lane; None for others."""
        left, right = (index_of(arg) for arg in expr.args)
        if left is None or right is None:
            return None
        distance = add(right, mul(left, -1))
        name, stride = expr.name, self.lane_stride(distance)
        if stride == 1:
            distance, name = mul(distance, -1), _MIRRORED[expr.name]
        elif stride != -1:
            return None
        self.headers.add("index")
        # Lane k compares as k does with the difference in the first lane.
        distances = [self.scalar(self.shifted(distance, number)) for number in range(self.context.registers)]
        texts = tuple(
            SPELLINGS[name].text.format(
                "iota<int32_t>(0)", f"broadcast<int32_t>(saturated({each.text}))", T=""
            )
            for each in distances
        )
        level = max(each.scope_level for each in distances)
        reads = frozenset[str]().union(*(each.reads for each in distances))
        return self.context.define(expr.name, texts, expr.dtype, level, varying=True, reads=reads)

    def _small_lanes(self, expr: Expr) -> CppValue | None:
        """Return a literal or index that fits 32 bits as a vector of ``i32``; None for any other expression."""
        if isinstance(expr, Const) and expr.dtype == i64 and self.fits_int32(int(expr.value)):
            return self.context.spread(CppValue((literal(expr.value, i32),), i32, 0))
        if isinstance(expr, Index) and self.fits_int32(expr.term):
            return self.per_lane(expr.term, narrow=True)
        return None

    # --- indirect indices -----------------------------------------------------------------------------------

    def indirect(self, atom: Indirect) -> CppValue:
        """Return the value of an indirect index, wrapped and checked as it requires."""
        found = self.context.scopes.find(atom)
        if found is not None:
            return found
        self.headers.add("index")
        context = self.context
        size = self.scalar(atom.size)
        index = self.converted(self.value(atom.value), i64)
        level, reads = max(index.scope_level, size.scope_level), index.reads | size.reads
        if atom.check == "raised":
            level = max(level, context.scopes.conditional_level)
        if atom.wrap:
            texts = tuple(f"wrap_index({each}, {size.text})" for each in index.registers)
            index = context.define("wrapped", texts, i64, level, varying=index.varying, reads=reads)
        if atom.check != "assumed":
            texts = self._into_range(atom, index, size.text, level)
            index = context.define("index", texts, i64, level, varying=index.varying, reads=reads)
        return context.scopes.remember(atom, CppValue(index.registers, i64, level, index.varying, reads))

    def _into_range(self, atom: Indirect, index: CppValue, size: str, level: int) -> tuple[str, ...]:
        """Return the index clamped to the range, after a report of a violation where the check raises."""
        if atom.check == "raised":
            flag, lanes = self.context.flag(atom.fault), self.context.scopes.active
            if not index.varying and (lanes is None or not lanes.masks):
                return tuple(f"checked_index({each}, {size}, {flag})" for each in index.registers)
            self._report(
                flag, tuple(f"in_range({each}, {size})" for each in index.registers), index.varying, level
            )
        return tuple(f"clamp_index({each}, {size})" for each in index.registers)

    def _report(self, flag: str, holds: tuple[str, ...], varying: bool, level: int) -> None:
        """Set ``flag`` where one of the conditions ``holds`` is false in an active lane."""
        lanes = self.context.scopes.active
        for number, text in enumerate(holds):
            if not varying:
                masked = lanes is not None and lanes.masks
                active = f"any_true({' | '.join(lanes.masks)}) && " if lanes and masked else ""
                line = f"{flag} |= {active}!{text};"
            else:
                line = f"{flag} |= any_true(~{text}{'' if lanes is None else f' & {lanes.mask(number)}'});"
            self.context.scopes.line(line, level)

    def _checked(self, expr: Checked) -> CppValue:
        """Emit the check of an expression and return the value of its body."""
        context = self.context
        cond, body = self._node(expr.cond), self._node(expr.body)
        flag = context.flag(expr.fault)
        self._report(
            flag, cond.registers, cond.varying, max(cond.scope_level, context.scopes.conditional_level)
        )
        return body

    # --- choice ---------------------------------------------------------------------------------------------

    def _masked(self, expr: Masked) -> CppValue:
        """Emit a masked expression as a select, a masked evaluation or a branch."""
        with self.context.scopes.at(self._level(expr)):
            cond = self._node(expr.cond)
            if not (touches_memory(expr.body) or touches_memory(expr.other)):
                return self._select(expr, cond, self.value(expr.body), self.value(expr.other))
            if cond.varying:
                return self._masked_lanes(expr, cond)
            return self._branch(expr, cond)

    def _select(self, expr: Masked, cond: CppValue, body: CppValue, other: CppValue) -> CppValue:
        """Evaluate both values and select by the condition."""
        operands = [cond, body, other]
        varying = any(operand.varying for operand in operands)
        if varying:
            operands = [self.context.spread(operand) for operand in operands]
        count = max(len(operand.registers) for operand in operands)
        texts = tuple(
            f"select({', '.join(operand.register(k) for operand in operands)})" for k in range(count)
        )
        level = max(operand.scope_level for operand in operands)
        reads = cond.reads | body.reads | other.reads
        return self.context.define("masked", texts, expr.dtype, level, varying=varying, reads=reads)

    def _masked_lanes(self, expr: Masked, cond: CppValue) -> CppValue:
        """Evaluate both values for all lanes; the body accesses memory only in lanes where the condition holds."""
        context = self.context
        outer = context.scopes.active
        masks = tuple(cond.register(number) for number in range(context.registers))
        if outer is not None:
            both = tuple(f"{each} & {outer.mask(number)}" for number, each in enumerate(masks))
            named = context.define("lanes", both, b1, context.scopes.top, varying=True)
            masks = named.registers
        top = context.scopes.top
        with context.scopes.under(ActiveLanes(masks=masks), conditional=True):
            body = self.value(expr.body).within(top)
        return self._select(expr, cond, body, self.value(expr.other))

    def _branch(self, expr: Masked, cond: CppValue) -> CppValue:
        """Emit a C++ branch, for a condition that is the same in all lanes."""
        context = self.context
        scopes = context.scopes
        level = scopes.top
        varying = self.may_vary(expr)
        kind = vector_type(expr.dtype) if varying else register_type(expr.dtype)
        names = tuple(context.names.fresh("masked") for _ in range(context.registers if varying else 1))
        for name in names:
            scopes.line(f"{kind} {name};")
        reads, sides = cond.reads, []
        for side in (expr.body, expr.other):
            with scopes.detached() as scope:
                value = self.value(side)
                reads |= value.reads
                if varying:
                    value = context.spread(value)
                for number, name in enumerate(names):
                    scopes.line(f"{name} = {value.register(number)};")
            sides.append(scope.lines)
        for line in (
            f"if ({cond.registers[0]}) {{",
            *indented(sides[0]),
            "} else {",
            *indented(sides[1]),
            "}",
        ):
            scopes.line(line)
        return CppValue(names, expr.dtype, level, varying, reads)

    def _level(self, expr: Masked) -> int:
        """Return the level of the outermost scope in which both values of a masked expression are known."""
        context, scopes = self.context, self.context.scopes
        level = scopes.conditional_level if touches_memory(expr) else 0
        for node in leaves(expr):
            if isinstance(node, (Scalar, Param)):
                found = scopes.find(node if isinstance(node, Param) else ("scalar", node.name))
                level = max(level, scopes.top if found is None else found.scope_level)
            elif isinstance(node, Load):
                if node.buffer in context.storing or context.buffers[node.buffer].laned:
                    return scopes.top
                level = max(level, context.point if node.buffer in context.written else 0)
            for name in node.free_symbols if node.terms else ():
                known = scopes.axis(name)
                level = max(level, scopes.top if known is None else known[1])
        return level
