"""Index terms in C++ as vectors of lanes: which terms differ between lanes, and by how much."""

from __future__ import annotations

from litz_codegen_cpp.emit.bodies.index import LANE_COUNT, IndexText, Indices, combined
from litz_codegen_cpp.emit.bodies.steps import lane_steps
from litz_codegen_cpp.emit.bodies.traversal import leaves
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_ir.dtypes import i32, i64
from litz_ir.errors import CodegenError
from litz_ir.scalar import Expr, Indirect, Load, Param, Scalar, indirects_in
from litz_ir.symbols import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    add,
    bounds,
    free_symbols,
    mul,
    substitute,
    symbol,
)  # fmt: skip

_INT32 = 2**31


class LaneIndices(Indices):
    """Emits index terms for each lane."""

    def varies(self, x: Size) -> bool:
        """Return True when the term may differ between lanes, or between the registers of a step."""
        return self._moves(x) and (self.context.registers > 1 or self.lane_stride(x) != 0)

    def _moves(self, x: Size) -> bool:
        """Return True when the vector axis is in the term, or an indirect index in it may differ between lanes."""
        axis = self.context.vector
        if axis is None:
            return False
        return axis in free_symbols(x) or any(self.may_vary(atom.value) for atom in indirects_in(x))

    def may_vary(self, expr: Expr) -> bool:
        """Return True when some part of the expression may differ between lanes."""
        axis, scopes = self.context.vector, self.context.scopes
        if axis is None:
            return False
        for node in leaves(expr):
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

    def shifted(self, x: Size, number: int) -> Size:
        """Return the term for the first lane of register ``number``."""
        axis = self.context.vector
        if number == 0 or axis is None:
            return x
        return substitute(x, {axis: add(symbol(axis), mul(LANE_COUNT, number))})

    def lane_stride(self, x: Size, registers: int = 1) -> Size | None:
        """Return the growth of the term from lane to lane; ``None`` when it is not uniform.

        It is asked for one or two registers. They start at a multiple of their lanes, so a quotient by such a
        multiple is the same in all lanes.
        """
        axis = self.context.vector
        if axis is None or not self._moves(x):
            return 0
        match x:
            case Symbol():
                return 1
            case Sum():
                strides = [(self.lane_stride(term, registers), factor) for term, factor in x.terms]
                if any(stride is None for stride, _ in strides):
                    return None
                return add(*(mul(stride, factor) for stride, factor in strides if stride is not None))
            case Product():
                moving = [factor for factor in x.factors if self._moves(factor)]
                stride = self.lane_stride(moving[0], registers) if len(moving) == 1 else None
                return None if stride is None else mul(stride, *(f for f in x.factors if not self._moves(f)))
            case FloorDiv() | Mod() if self._aligned(x, axis, registers):
                return 0 if isinstance(x, FloorDiv) else 1
        return None

    def _aligned(self, x: FloorDiv | Mod, axis: str, registers: int) -> bool:
        """Return True when the dividend is the axis plus multiples of the lane count, and the divisor is such a
        multiple."""
        lanes = self.context.lanes * registers
        if not isinstance(x.divisor, int) or x.divisor % lanes:
            return False
        if isinstance(x.dividend, Symbol):
            return True
        if not isinstance(x.dividend, Sum) or x.dividend.constant % lanes:
            return False
        return all(
            factor == 1 if isinstance(term, Symbol) and term.name == axis
            else (factor % lanes == 0 or term is LANE_COUNT) and not self._moves(term)
            for term, factor in x.dividend.terms
        )  # fmt: skip

    def run_of(self, x: Size) -> str:
        """Return ``run`` where lanes are contiguous if the last is that far from the first, ``turning_run`` where they
        are so upwards or downwards; empty where neither is known or elements of a buffer decide."""
        if indirects_in(x):
            return ""
        low, high = lane_steps(x, self.lane_stride)
        if high is None or high > 1:
            return ""
        return "turning_run" if low is not None and low >= -1 else "run"

    def lane_ends(self, x: Size, number: int) -> tuple[IndexText, IndexText, IndexText]:
        """Return the term for the first and the last lane of register ``number``, and for every one."""
        axis = self.context.vector
        assert axis is not None
        first = self.shifted(x, number)
        last = substitute(first, {axis: add(symbol(axis), LANE_COUNT, -1)})
        return self.scalar(first), self.scalar(last), self._lanes(first, self.fits_int32(x))

    def fits_int32(self, x: Size) -> bool:
        """Return True when the term and all its subterms fit 32 bits."""
        if isinstance(x, Indirect) and not isinstance(x.size, int):
            return False
        known = bounds(x, self.context.ranges)
        if known.low is None or known.high is None or known.low <= -_INT32 or known.high >= _INT32:
            return False
        if isinstance(x, (int, Indirect)):
            return True
        return all(self.fits_int32(child) for child in x.children())

    def per_lane(self, x: Size, narrow: bool = False) -> CppValue:
        """Return the term in every lane: ``i64``, or ``i32`` when ``narrow``, which :meth:`fits_int32` must allow."""
        dtype = i32 if narrow else i64
        key = ("lanes", dtype.name, x)
        found = self.context.scopes.find(key)
        if found is not None:
            return found
        operands = [self._lanes(self.shifted(x, number), narrow) for number in range(self.context.registers)]
        level = max(operand.scope_level for operand in operands)
        reads = frozenset[str]().union(*(operand.reads for operand in operands))
        value = self.context.define(
            "at", tuple(operand.text for operand in operands), dtype, level, varying=True, reads=reads
        )
        return self.context.scopes.remember(key, value)

    def _lanes(self, x: Size, narrow: bool) -> IndexText:
        """Return the term for every lane of one register."""
        kind = "int32_t" if narrow else "int64_t"
        stride = self.lane_stride(x)
        if stride is not None:
            base = self.scalar(x)
            start = f"{kind}({base.text})" if narrow else base.text
            if stride == 0:
                return IndexText(f"broadcast<{kind}>({start})", base.scope_level, True, base.reads)
            if stride == 1:
                return IndexText(f"iota<{kind}>({start})", base.scope_level, True, base.reads)
            step = self.scalar(stride)
            text = f"broadcast<{kind}>({start}) + iota<{kind}>(0) * broadcast<{kind}>({step.text})"
            return IndexText(text, max(base.scope_level, step.scope_level), False, base.reads)
        match x:
            case Sum():
                return self._lane_sum(x, narrow)
            case Product():
                operands = [self._lanes(factor, narrow) for factor in x.factors]
                return combined(" * ", operands)
            case FloorDiv() | Mod():
                return self._lane_quotient(x, narrow)
            case Min() | Max():
                return self._lane_extremum(x, narrow)
            case Indirect():
                if narrow and x.check == "assumed" and not x.wrap and x.value.dtype == i32:
                    value = self.context.spread(self.value(x.value))
                    return IndexText(value.registers[0], value.scope_level, True, value.reads)
                value = self.context.spread(self.indirect(x))
                return IndexText(
                    f"convert<int32_t>({value.registers[0]})" if narrow else value.registers[0],
                    value.scope_level,
                    True,
                    value.reads,
                )
        raise CodegenError(f"no C++ form for the index term {x}", node=self.context.kernel.name)

    def _lane_sum(self, x: Sum, narrow: bool) -> IndexText:
        kind = "int32_t" if narrow else "int64_t"
        linear: list[Size] = [x.constant]
        others: list[IndexText] = []
        for term, factor in x.terms:
            if self.lane_stride(term) is not None:
                linear.append(mul(term, factor))
                continue
            operand = self._lanes(term, narrow)
            scaled = (
                operand
                if factor == 1
                else combined(" * ", [operand, IndexText(f"broadcast<{kind}>({factor})", 0)])
            )
            others.append(scaled)
        rest = add(*linear)
        return combined(" + ", others if rest == 0 else [self._lanes(rest, narrow), *others])

    def _lane_quotient(self, x: FloorDiv | Mod, narrow: bool) -> IndexText:
        dividend = self._lanes(x.dividend, narrow)
        if narrow and isinstance(x.divisor, int) and self.is_plain_division(x):
            # The compiler turns the division of a vector by a literal into a multiplication.
            sign = "/" if isinstance(x, FloorDiv) else "%"
            return IndexText(
                f"({dividend.bracketed()} {sign} {x.divisor})", dividend.scope_level, True, dividend.reads
            )
        name = "floor_div" if isinstance(x, FloorDiv) else "remainder"
        return combined(", ", [dividend, self._lanes(x.divisor, narrow)], call=name)

    def _lane_extremum(self, x: Min | Max, narrow: bool) -> IndexText:
        name = "minimum" if isinstance(x, Min) else "maximum"
        operands = [self._lanes(arg, narrow) for arg in x.args]
        result = operands[0]
        for operand in operands[1:]:
            result = combined(", ", [result, operand], call=name)
        return result
