"""Steps whose values or memory the program knows only when they run: operators, symbols and assertions."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_cpp.emit.source.entry_points import entry_point
from litz_codegen_cpp.host.host_values import host_value
from litz_codegen_cpp.host.memory_writer import MemoryWriter, remark
from litz_codegen_cpp.host.operator_calls import argument_lines, operator_of, result_row
from litz_ir.plan import CallStep, CheckStep, DefineStep
from litz_ir.scalar import Expr
from litz_ir.symbols import free_symbols


class ValueSteps(MemoryWriter):
    """The writing of such steps."""

    def operator(self, step: CallStep) -> None:
        """Write the call of an operator, whose results get numbers that follow one another."""
        operator = operator_of(step.target)
        assert operator is not None
        table = self.shared.operators
        table.setdefault(step.target, operator)
        position, number = self.step(step.target), list(table).index(step.target)
        lines, count = argument_lines(self, step)
        first, self.shared.dynamic = self.shared.dynamic, self.shared.dynamic + len(step.results)
        rows, pointers = [], []
        for k, name in enumerate(step.results):
            if name is None or name not in self.dynamic:
                rows.append("{}")
                continue
            type_ = self.type(name)
            sizes = (*type_.shape, *type_.layout.strides)
            late = [bool(free_symbols(size) & self.unknown) for size in sizes]
            terms = ["-1" if unknown else self.term(size) for size, unknown in zip(sizes, late, strict=True)]
            self.dynamic[name] = first + k
            self.found[name] = first + k
            self.lines.append(f"int64_t found{first + k}[{len(sizes) + 1}] = {{}};")
            lines.append(f"const int64_t promised{first + k}[] = {{{', '.join(terms) or '0'}}};")
            rows.append(result_row(type_, first + k, 0, is_complex=name in step.pairs, wanted=True))
            if any(late):
                self.unsettled.append(name)
            back = (
                ""
                if type_.layout.offset == 0
                else f" - {self.term(type_.layout.offset)} * {type_.dtype.itemsize}"
            )
            pointers.append(f"dynamic{first + k} = (char*)results[{k}].data{back};")
        lines += [
            f"litz_result results[] = {{{', '.join(rows) or '{}'}}};",
            f"if (services->call(services, {number}, arguments, {count}, results, {len(rows)}, {first}))",
            f"  return {position} * LITZ_HOST_STEP + LITZ_HOST_CALL_FAULT;",
            *pointers,
        ]
        self.add_block([f"// {remark(step.target)}, step {position}", *lines])

    def define(self, step: DefineStep) -> None:
        """Write a symbol's definition, and the layout checks that it makes possible."""
        variable, kind = self.number(step.symbol)
        if isinstance(step.source, Expr):
            self.evaluate(step.source, kind, step.symbol, [f"{variable} = value;"])
        else:
            what, name, dimension = step.source
            rank = len(self.type(name).shape)
            self.lines.append(
                f"{variable} = found{self.found[name]}[{dimension + (rank if what == 'stride' else 0)}];"
            )
        self.unknown.discard(step.symbol)
        for name in self.unsettled:
            type_ = self.type(name)
            sizes = (*type_.shape, *type_.layout.strides)
            if any(free_symbols(size) & self.unknown for size in sizes):
                continue
            terms = ", ".join(self.term(size) for size in sizes)
            self.lines.append(
                f"if (!litz_fits(found{self.found[name]}, numbers<{len(sizes)}>{{{{{terms}}}}}))"
                f" return {self.step(name)} * LITZ_HOST_STEP + LITZ_HOST_LAYOUT_FAULT;"
            )
        self.unsettled = [
            name for name in self.unsettled
            if any(free_symbols(n) & self.unknown for n in (*self.type(name).shape, *self.type(name).layout.strides))
        ]  # fmt: skip

    def check(self, step: CheckStep) -> None:
        """Write an assertion about values."""
        position = self.step(step.message)
        failed = f"if (!value) return {position} * LITZ_HOST_STEP + LITZ_HOST_CHECK_FAULT;"
        self.evaluate(step.condition, "bool", "check", [failed])

    def evaluate(self, body: Expr, kind: str, name: str, then: Sequence[str]) -> None:
        """Write the evaluation of a 0-d body as the variable ``value``."""
        infos = {info.name: info for info in self.plan.symbols}
        kernel_name = f"{self.function}_value{len(self.shared.steps)}"
        found = host_value(kernel_name, body, kind, self.type, infos)
        self.shared.kernels[kernel_name] = found.kernel
        buffers = [*(self.start(each) for each in found.buffers), "&value"]
        values = [self.names[each] for each in found.symbols]
        self.add_block([
            "int64_t value = 0;",
            f"void* buffers[] = {{{', '.join(buffers)}}};",
            f"const int64_t values[] = {{{', '.join(values) or '0'}}};",
            f"const int64_t failure = {entry_point(kernel_name)}(rt, buffers, values);",
            f"if (failure) return {self.step(name)} * LITZ_HOST_STEP + failure;",
            *then,
        ])  # fmt: skip
