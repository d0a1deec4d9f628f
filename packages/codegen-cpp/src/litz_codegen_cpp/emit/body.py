"""Loop bodies in C++: every distinct expression once, as early as it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from litz_codegen_cpp.emit.casts import bitcast, cast
from litz_codegen_cpp.emit.context import Context
from litz_codegen_cpp.emit.index import Indices
from litz_codegen_cpp.emit.ops_table import SPELLINGS
from litz_codegen_cpp.emit.scopes import ActiveLanes, CppValue, indented
from litz_codegen_cpp.emit.spelling import literal, memory_type, register_type, vector_type
from litz_codegen_cpp.emit.vector import MemoryEmitter
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
    Op,
    Param,
    Scalar,
    indirects,
)
from litz_ir.symbols import Size, add, mul

_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS = frozenset(_MIRRORED)


class ExpressionEmitter(Indices):
    """Writes expressions and the index terms in them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.memory = MemoryEmitter(context, self)
        self.headers: set[str] = set()

    def value(self, root: Expr) -> CppValue:
        """The value of an expression at the innermost scope."""
        for node in self._eager_order(root):
            self._node(node)
        return self._node(root)

    def _eager_order(self, root: Expr) -> Iterator[Expr]:
        """Children before parents, without what is known and what is evaluated lazily: the body of a masked node, and
        the other side too where a branch chooses. Indices are left out: they are written when wanted, in lanes of the
        width wanted."""
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
                children = node.children
                if isinstance(node, Masked):
                    children = (node.cond, node.other) if self.may_vary(node.cond) else (node.cond,)
                stack.extend((child, False) for child in reversed(children))

    def to_store(self, root: Expr) -> CppValue:
        """The value of an expression that goes to memory of its own dtype, where narrow floats are rounded anyway."""
        if (
            isinstance(root, Op)
            and root.name == "cast"
            and root.dtype.is_low_precision
            and compute_dtype(root.args[0].dtype) == f32
        ):
            return replace(self.value(root.args[0]), dtype=root.dtype)
        return self.value(root)

    def _node(self, expr: Expr) -> CppValue:
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
            case Param():
                raise CodegenError(
                    f"parameter {expr.position} stands outside a combine body", node=self.context.kernel.name
                )
        raise CodegenError(f"no C++ form for {expr!r}", node=self.context.kernel.name)

    # --- leaves ---------------------------------------------------------------------------------------------

    def _index(self, term: Size) -> CppValue:
        if self.varies(term):
            return self.per_lane(term)
        piece = self.scalar(term)
        text = piece.text if piece.text.isidentifier() else f"int64_t({piece.text})"
        return CppValue((text,), i64, piece.scope_level, reads=piece.reads)

    def _scalar(self, expr: Scalar) -> CppValue:
        found = self.context.scopes.find(("scalar", expr.name))
        if found is None:
            raise CodegenError(
                f"scalar {expr.name!r} is neither a symbol of the kernel nor an earlier phase's result",
                node=self.context.kernel.name,
            )
        return self.converted(found, expr.dtype)

    def converted(self, value: CppValue, dtype: DType) -> CppValue:
        """The value as another dtype."""
        if value.dtype == dtype:
            return value
        texts = tuple(cast(part, value.dtype, dtype) for part in value.registers)
        return self.context.define(
            "as", texts, dtype, value.scope_level, varying=value.varying, reads=value.reads
        )

    # --- operations -----------------------------------------------------------------------------------------

    def _op(self, expr: Op) -> CppValue:
        narrow = self._small_index(expr)
        if narrow is not None:
            return narrow
        arguments = [self._node(arg) for arg in expr.args]
        varying = any(argument.varying for argument in arguments)
        if varying:
            if expr.name == "div" and expr.dtype == f32 and self._serves_many(arguments[1]):
                arguments[1] = self.context.divisor(arguments[1])
            arguments = [self.context.spread(argument) for argument in arguments]
        home = max((argument.scope_level for argument in arguments), default=0)
        reads = frozenset[str]().union(*(argument.reads for argument in arguments))
        count = max(len(argument.registers) for argument in arguments)
        if expr.name == "cast" and (expr.args[0].dtype, expr.dtype) == (f32, bf16) and count % 2 == 0:
            # The CPU narrows two registers by one instruction.
            parts = arguments[0].registers
            rounded = [f"round_bf16_pair({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
            return self.context.define_pairs("cast", rounded, bf16, home, reads)
        texts = tuple(
            self._spelled(expr, [argument.register(part) for argument in arguments], varying)
            for part in range(count)
        )
        if expr.name == "cast" and texts == arguments[0].registers:
            return replace(arguments[0], dtype=expr.dtype)
        return self.context.define(expr.name, texts, expr.dtype, home, varying=varying, reads=reads)

    def _serves_many(self, value: CppValue) -> bool:
        """True for a number, no literal, that is known outside the innermost loop."""
        return (
            not value.varying
            and value.scope_level < self.context.scopes.top
            and value.registers[0].isidentifier()
        )

    def _spelled(self, expr: Op, arguments: list[str], varying: bool) -> str:
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
        """Comparisons and casts to ``f32`` of indices that 31 bits hold take half as many registers as ``i64`` ones."""
        if expr.name not in _COMPARISONS and (expr.name, expr.dtype) != ("cast", f32):
            return None
        if not any(isinstance(arg, Index) and self.varies(arg.term) for arg in expr.args):
            return None
        lanes = [self._small_lanes(arg) for arg in expr.args]
        values = [value for value in lanes if value is not None]
        if len(values) < len(lanes):
            return self._lane_numbers_compared(expr) if expr.name in _COMPARISONS else None
        home = max(value.scope_level for value in values)
        reads = frozenset[str]().union(*(value.reads for value in values))
        row = SPELLINGS[expr.name]
        count = max(len(value.registers) for value in values)
        texts = tuple(
            row.text.format(*(value.register(part) for value in values), T=register_type(expr.dtype))
            for part in range(count)
        )
        return self.context.define(expr.name, texts, expr.dtype, home, varying=True, reads=reads)

    def _lane_numbers_compared(self, expr: Op) -> CppValue | None:
        """Indices of any size that grow by one from lane to lane are compared by the number of the lane."""
        sides = [_index_of(arg) for arg in expr.args]
        if sides[0] is None or sides[1] is None:
            return None
        distance = add(sides[1], mul(sides[0], -1))
        name, stride = expr.name, self.lane_stride(distance)
        if stride == 1:
            distance, name = mul(distance, -1), _MIRRORED[expr.name]
        elif stride != -1:
            return None
        self.headers.add("index")
        # Lane k compares as k and the distance in the first lane do.
        pieces = [self.scalar(self.shifted(distance, part)) for part in range(self.context.registers)]
        texts = tuple(
            SPELLINGS[name].text.format(
                "iota<int32_t>(0)", f"broadcast<int32_t>(saturated({piece.text}))", T=""
            )
            for piece in pieces
        )
        home = max(piece.scope_level for piece in pieces)
        reads = frozenset[str]().union(*(piece.reads for piece in pieces))
        return self.context.define(expr.name, texts, expr.dtype, home, varying=True, reads=reads)

    def _small_lanes(self, expr: Expr) -> CppValue | None:
        if isinstance(expr, Const) and expr.dtype == i64 and self.fits_int32(int(expr.value)):
            return self.context.spread(CppValue((literal(expr.value, i32),), i32, 0))
        if isinstance(expr, Index) and self.fits_int32(expr.term):
            return self.per_lane(expr.term, narrow=True)
        return None

    # --- indirect indices -----------------------------------------------------------------------------------

    def indirect(self, atom: Indirect) -> CppValue:
        found = self.context.scopes.find(atom)
        if found is not None:
            return found
        self.headers.add("index")
        context = self.context
        size = self.scalar(atom.size)
        index = self.converted(self.value(atom.value), i64)
        home, reads = max(index.scope_level, size.scope_level), index.reads | size.reads
        if atom.check == "raised":
            home = max(home, context.scopes.conditional_level)
        if atom.wrap:
            texts = tuple(f"wrap_index({part}, {size.text})" for part in index.registers)
            index = context.define("wrapped", texts, i64, home, varying=index.varying, reads=reads)
        if atom.check != "assumed":
            texts = self._into_range(atom, index, size.text, home)
            index = context.define("index", texts, i64, home, varying=index.varying, reads=reads)
        return context.scopes.remember(atom, CppValue(index.registers, i64, home, index.varying, reads))

    def _into_range(self, atom: Indirect, index: CppValue, size: str, home: int) -> tuple[str, ...]:
        """The index with what lies outside moved inside, which is reported where that is an error."""
        if atom.check == "raised":
            flag, lanes = self.context.flag(atom.fault), self.context.scopes.active
            if not index.varying and (lanes is None or not lanes.masks):
                return tuple(f"checked_index({part}, {size}, {flag})" for part in index.registers)
            self._report(
                flag, tuple(f"in_range({part}, {size})" for part in index.registers), index.varying, home
            )
        return tuple(f"clamp_index({part}, {size})" for part in index.registers)

    def _report(self, flag: str, holds: tuple[str, ...], varying: bool, home: int) -> None:
        """Raise ``flag`` where one of the conditions ``holds`` does not, for a lane that takes part."""
        lanes = self.context.scopes.active
        for part, text in enumerate(holds):
            if not varying:
                guard = (
                    f"any_true({' | '.join(lanes.masks)}) && " if lanes is not None and lanes.masks else ""
                )
                line = f"{flag} |= {guard}!{text};"
            else:
                line = f"{flag} |= any_true(~{text}{'' if lanes is None else f' & {lanes.mask(part)}'});"
            self.context.scopes.line(line, home)

    def _checked(self, expr: Checked) -> CppValue:
        context = self.context
        cond, body = self._node(expr.cond), self._node(expr.body)
        flag = context.flag(expr.fault)
        self._report(
            flag, cond.registers, cond.varying, max(cond.scope_level, context.scopes.conditional_level)
        )
        return body

    # --- choice ---------------------------------------------------------------------------------------------

    def _masked(self, expr: Masked) -> CppValue:
        with self.context.scopes.at(self._home(expr)):
            cond = self._node(expr.cond)
            if not (_touches_memory(expr.body) or _touches_memory(expr.other)):
                return self._select(expr, cond, self.value(expr.body), self.value(expr.other))
            if cond.varying:
                return self._masked_lanes(expr, cond)
            return self._branch(expr, cond)

    def _select(self, expr: Masked, cond: CppValue, body: CppValue, other: CppValue) -> CppValue:
        operands = [cond, body, other]
        varying = any(operand.varying for operand in operands)
        if varying:
            operands = [self.context.spread(operand) for operand in operands]
        count = max(len(operand.registers) for operand in operands)
        texts = tuple(
            f"select({', '.join(operand.register(k) for operand in operands)})" for k in range(count)
        )
        home = max(operand.scope_level for operand in operands)
        reads = cond.reads | body.reads | other.reads
        return self.context.define("masked", texts, expr.dtype, home, varying=varying, reads=reads)

    def _masked_lanes(self, expr: Masked, cond: CppValue) -> CppValue:
        """Both sides for all lanes; the body touches memory for those lanes only where the condition holds."""
        context = self.context
        outer = context.scopes.active
        masks = tuple(cond.register(part) for part in range(context.registers))
        if outer is not None:
            both = tuple(f"{each} & {outer.mask(part)}" for part, each in enumerate(masks))
            named = context.define("lanes", both, b1, context.scopes.top, varying=True)
            masks = named.registers
        top = context.scopes.top
        with context.scopes.under(ActiveLanes(masks=masks), guard=True):
            body = self.value(expr.body).within(top)
        return self._select(expr, cond, body, self.value(expr.other))

    def _branch(self, expr: Masked, cond: CppValue) -> CppValue:
        """A C++ branch: the condition is the same for all lanes."""
        context = self.context
        scopes = context.scopes
        home = scopes.top
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
                for part, name in enumerate(names):
                    scopes.line(f"{name} = {value.register(part)};")
            sides.append(scope.lines)
        for line in (
            f"if ({cond.registers[0]}) {{",
            *indented(sides[0]),
            "} else {",
            *indented(sides[1]),
            "}",
        ):
            scopes.line(line)
        return CppValue(names, expr.dtype, home, varying, reads)

    def may_vary(self, expr: Expr) -> bool:
        """True when some part of the expression differs between lanes."""
        axis, scopes = self.context.vector, self.context.scopes
        if axis is None:
            return False
        for node in _leaves(expr):
            if isinstance(node, Scalar):
                found = scopes.find(("scalar", node.name))
                if found is not None and found.varying:
                    return True
            elif isinstance(node, Param):
                found = scopes.find(node)
                if found is not None and found.varying:
                    return True
            elif isinstance(node, Load) and self.context.buffers[node.buffer].laned:
                return True
            elif any(self.varies(term) for term in node.terms):
                return True
        return False

    def _home(self, expr: Masked) -> int:
        """The outermost scope in which a choice may be made: all that both sides are made of is known there."""
        context, scopes = self.context, self.context.scopes
        home = scopes.conditional_level if _touches_memory(expr) else 0
        for node in _leaves(expr):
            if isinstance(node, (Scalar, Param)):
                found = scopes.find(node if isinstance(node, Param) else ("scalar", node.name))
                home = max(home, scopes.top if found is None else found.scope_level)
            elif isinstance(node, Load):
                if node.buffer in context.storing or context.buffers[node.buffer].laned:
                    return scopes.top
                home = max(home, context.point if node.buffer in context.written else 0)
            for name in node.free_symbols if node.terms else ():
                known = scopes.axis(name)
                home = max(home, scopes.top if known is None else known[1])
        return home


def _index_of(expr: Expr) -> Size | None:
    """The term that an expression is the value of."""
    if isinstance(expr, Index):
        return expr.term
    return int(expr.value) if isinstance(expr, Const) and expr.dtype == i64 else None


def _leaves(root: Expr) -> Iterator[Expr]:
    """Every distinct node without children below ``root``, those inside indirect indices included."""
    return (node for node in _nodes(root) if not node.children)


def _nodes(root: Expr) -> Iterator[Expr]:
    """Every distinct node below ``root``, those inside indirect indices included."""
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(node.children)
        stack.extend(atom.value for atom in indirects(node))


def _touches_memory(expr: Expr) -> bool:
    """True when evaluating the expression reads memory or may report a fault."""
    return any(
        isinstance(node, Load | Checked) or any(True for _ in indirects(node)) for node in _nodes(expr)
    )
