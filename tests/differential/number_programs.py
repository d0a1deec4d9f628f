"""Generated programs over Python numbers that change between calls.

A program is the text of a function of a tensor. Its numbers come from everywhere that Dynamo finds them: arguments,
defaults, closures, containers, attributes of dataclasses and modules, sizes, and 0-d tensors. Expressions of Python's
operators combine them, and tensor operations, slices and branches use the results.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["float", "int", "bool"]
Place = Literal[
    "argument",
    "default",
    "closure",
    "list",
    "dict",
    "dataclass",
    "module",
    "global",
    "tensor",
    "size",
    "item",
]

CALLS = 4
"""Calls of each program, with other numbers in each."""

PLACES: tuple[Place, ...] = (
    "argument", "argument", "argument", "default", "closure", "list", "dict", "dataclass", "module", "global",
    "tensor", "size", "item",
)  # fmt: skip

FLOATS = (1.0, 0.25, 0.5, 2.5, -1.5, 0.1, 0.1 + 0.2, 3.0, 0.0, -2.0, 7.3, 1e-3)
INTS = (2, 3, 5, 7, 4, 12, 1, 0, -3, 21)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a program: its name, type and place, and its value in each call."""

    name: str
    kind: Kind
    place: Place
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NumberProgram:
    """A function of a tensor and of numbers."""

    numbers: tuple[Number, ...]
    lines: tuple[str, ...]
    """Assignments of results, ``r0`` and so on, each to a tensor or number."""
    dtype: torch.dtype
    gradients: bool
    dynamic: bool | None

    def source(self) -> str:
        """Return the program's function as text."""
        defaults = [f"{n.name}={n.values[0]!r}" for n in self.numbers if n.place == "default"]
        given = [n.name for n in self.numbers if n.place in ("argument", "tensor", "item")]
        reads = {
            "list": "{0} = box[{1}]",
            "dict": "{0} = table[{0!r}]",
            "dataclass": "{0} = record.{0}",
            "module": "{0} = module.{0}",
            "size": "{0} = x.shape[1]",
            "item": "{0} = {0}.item()",
        }
        listed = [n.name for n in self.numbers if n.place == "list"]
        read = [
            reads[n.place].format(n.name, listed.index(n.name) if n.name in listed else 0)
            for n in self.numbers
            if n.place in reads
        ]
        closed = [n.name for n in self.numbers if n.place == "closure"]
        head = ", ".join(["x", "box", "table", "record", "module", *given, *defaults])
        results = ", ".join(line.partition(" = ")[0] for line in self.lines if line.startswith("r"))
        body = "\n".join(f"        {line}" for line in (*read, *self.lines, f"return [{results}]"))
        return f"def make({', '.join(closed)}):\n    def f({head}):\n{body}\n    return f\n"

    def as_text(self) -> str:
        """Return a full description, as a report of a mismatch shows it."""
        numbers = [f"{n.name}: {n.kind} of a {n.place}, {n.values}" for n in self.numbers]
        modes = f"{self.dtype}, gradients={self.gradients}, dynamic={self.dynamic}"
        return "\n".join([self.source(), *numbers, modes])

    def columns(self, call: int) -> int:
        """Return the columns of the tensor in a call."""
        sizes = [int(n.values[call]) for n in self.numbers if n.place == "size"]
        return sizes[0] if sizes else 6


@dataclass(slots=True)
class NumberRun:
    """The state of a program between its calls."""

    program: NumberProgram
    function: FunctionType
    call: Callable[..., Any]
    module: nn.Module = field(default_factory=nn.Module)

    @staticmethod
    def of(program: NumberProgram, compile_: Callable[[Any], Callable[..., Any]]) -> NumberRun:
        """Build the function of a program afresh, compiled by ``compile_``."""
        text, file = program.source(), f"<numbers {hash(program) & 0xFFFFFF:x}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        scope: dict[str, Any] = {"torch": torch, "F": nn.functional, "math": math}
        exec(compile(text, file, "exec"), scope)
        closed = [n.values[0] for n in program.numbers if n.place == "closure"]
        function = scope["make"](*closed)
        return NumberRun(program, function, compile_(function))

    def step(self, call: int) -> list[Any]:
        """Set the numbers of a call, call, and return results and the gradient of the tensor."""
        values = {n.name: n.values[call] for n in self.program.numbers}
        placed = {n.name: n.place for n in self.program.numbers}

        def of(place: Place) -> dict[str, float]:
            return {name: value for name, value in values.items() if placed[name] == place}

        for name, value in of("closure").items():
            index = (
                self.function.__code__.co_freevars.index(name)
                if name in self.function.__code__.co_freevars
                else None
            )
            if index is not None:
                self.function.__closure__[index].cell_contents = value  # type: ignore[index]
        self.function.__defaults__ = tuple(of("default").values()) or None
        self.function.__globals__.update(of("global"))
        for name, value in of("module").items():
            setattr(self.module, name, value)
        record_type = dataclasses.make_dataclass("Record", list(of("dataclass")))
        given: list[Any] = []
        for n in self.program.numbers:
            if n.place == "argument":
                given.append(n.values[call])
            elif n.place in ("tensor", "item"):
                dtype = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}[n.kind]
                given.append(torch.tensor(n.values[call], dtype=dtype))
        columns = self.program.columns(call)
        x = torch.linspace(-2, 2, 3 * columns).reshape(3, columns).to(self.program.dtype)
        x.requires_grad_(self.program.gradients)
        results = self.call(
            x, list(of("list").values()), of("dict"), record_type(**of("dataclass")), self.module, *given
        )
        wanting = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
        if wanting:
            torch.stack([each.double().sum() for each in wanting]).sum().backward()
        return [*(each.detach() if isinstance(each, Tensor) else each for each in results), x.grad]


# --- drawing --------------------------------------------------------------------------------------------

_FLOAT_UNARY = ("-({a})", "abs({a})", "math.floor({a})", "math.ceil({a})", "math.trunc({a})", "round({a})",
                "round({a}, 1)", "round({a}, -1)", "int({a})", "float({a})", "math.sqrt(abs({a}))", "math.sin({a})",
                "math.cos({a})", "math.tanh({a})", "math.atan({a})", "math.log2(abs({a}) + 1)", "max({a}, 0.5)",
                "min({a}, 2.5)")  # fmt: skip
_INT_UNARY = ("-({a})", "abs({a})", "({a} & ~3)", "({a} & 5)", "({a} | 2)", "({a} ^ 5)", "({a} << 2)", "({a} >> 1)",
              "(1 << ({a} & 3))", "({a}) % 4", "-({a}) % 4", "({a}) // 2", "-({a}) // 3", "({a}) ** 2",
              "2 ** abs({a} % 5)", "({a}) / 2", "({a}) % 2.5", "({a}) // 2.5", "float({a})", "max({a}, 3)",
              "min({a}, 4)", "round(({a}) / 2)", "round(({a}) / 3, 2)", "math.sqrt(abs({a}))", "+({a})",
              "sum([{a}, {a}, 1])")  # fmt: skip
_BINARY = ("({a} + {b})", "({a} - {b})", "({a} * {b})", "max({a}, {b})", "min({a}, {b})", "({a} / ({b} * {b} + 1))",
           "({a} // ({b} * {b} + 1))", "({a} % ({b} * {b} + 1))")  # fmt: skip
_TESTS = ("({a} > {b})", "({a} <= {b})", "({a} == {b})", "({a} != {b})", "(({a} > 1) and ({b} < 3))",
          "(not ({a} > {b}))", "(({a} > 0) & ({b} > 0))", "(({a} > 2) | ({b} < 0))")  # fmt: skip
_USES = ("x * {n}", "x + {n}", "{n} - x", "x / ({n} + 100)", "torch.full((2,), {n})", "x.clamp(max={n})",
         "x.clamp(min={n})", "F.leaky_relu(x, {n})", "F.elu(x, abs({n}) + 1)", "F.threshold(x, {n}, 1.5)",
         "x.masked_fill(x > 0, {n})", "torch.where(x > 0, x, {n})", "torch.where(x > {n}, x, 0.0)",
         "F.hardtanh(x, -abs({n}) - 1, abs({n}))", "F.softplus(x, abs({n}) + 0.5)", "torch.add(x, x, alpha={n})",
         "torch.addcmul(x, x, x, value={n})", "x.new_full((3,), {n})", "torch.scalar_tensor({n})",
         "torch.tensor({n}) * x", "F.huber_loss(x, x * 2, delta=abs({n}) + 1)", "(x.abs() + 1) ** {n}",
         "F.layer_norm(x, x.shape[1:], eps=abs({n}) + 1)", "x.long() * {n}", "x.ge({n})", "F.hardshrink(x, {n})",
         "torch.lerp(x, x * 2, {n})", "x.sum() * {n}", "torch.arange(3) * {n}",
         "torch.vmap(torch.mul, in_dims=(0, None))(x, {n})", "F.pad(x, (1, 0), value={n})",
         "torch.addmm(x[:, :1], x, x.t(), beta={n}, alpha=2)[0]", "F.celu(x, abs({n}) + 1)")  # fmt: skip
_INT_USES = ("x[:, : {n} & 7] * 2", "x[:, abs({n}) % 3 :] + 1", "F.pad(x, (0, {n} & 3))", "x.repeat(1, 1 + ({n} & 1))",
             "x.new_ones(2, abs({n}) % 5 + 1) * 3", "torch.zeros(1 + ({n} & 7))", "torch.roll(x, {n}, 1)",
             "x.narrow(1, 0, min(abs({n}) + 1, 2)) * 2", "x.tril({n})", "torch.arange(abs({n}) % 6 + 2)",
             "x.select(0, {n} % 3) * 2", "x.expand(2, *x.shape)[{n} & 1] * 1.5")  # fmt: skip


class _Drawing:
    """Draws of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.named: list[Number] = []

    def number(self) -> Number:
        """Draw a number with its place and values."""
        name, place = f"n{len(self.named)}", self.random.choice(PLACES)
        kind: Kind = self.random.choice(("float", "float", "float", "int", "int", "bool"))
        if place == "size":
            kind = "int"
        pool: tuple[Any, ...] = {"float": FLOATS, "int": INTS, "bool": (True, False)}[kind]
        if place == "size":
            pool = (6, 9, 16, 21, 5)
        values = tuple(self.random.choice(pool) for _ in range(CALLS))
        return Number(name, kind, place, values)

    def expression(self, depth: int) -> tuple[str, Kind]:
        """Draw an expression of the program's numbers, and its type."""
        if depth == 0 or self.random.random() < 0.2:
            chosen = self.random.choice(self.named)
            return chosen.name, chosen.kind
        a, kind = self.expression(depth - 1)
        choice = self.random.random()
        if choice < 0.35:
            b, other = self.expression(depth - 1)
            text = self.random.choice(_BINARY)
            floats = "float" in (kind, other) or "/ (" in text
            return text.format(a=a, b=b), "float" if floats else "int"
        if choice < 0.42:
            b, _ = self.expression(depth - 1)
            return self.random.choice(_TESTS).format(a=a, b=b), "bool"
        if kind == "float":
            text = self.random.choice(_FLOAT_UNARY)
            whole = text.startswith(("math.floor", "math.ceil", "math.trunc", "int", "round({a})"))
            return text.format(a=a), "int" if whole else "float"
        if kind == "bool":
            return a, kind
        text = self.random.choice(_INT_UNARY)
        floats = text in ("({a}) / 2", "({a}) % 2.5", "({a}) // 2.5", "float({a})", "round(({a}) / 3, 2)")
        return text.format(a=a), "float" if floats or "sqrt" in text else "int"

    def line(self, position: int) -> str:
        """Draw a result."""
        text, kind = self.expression(self.random.choice((0, 1, 1, 2, 3)))
        uses = _INT_USES if kind == "int" and self.random.random() < 0.4 else _USES
        use = self.random.choice(uses).format(n=f"({text})")
        choice = self.random.random()
        if choice < 0.1:
            other, _ = self.expression(1)
            return f"r{position} = {use} if {other} > 0.6 else x * 3"
        return f"r{position} = {text}" if choice < 0.17 else f"r{position} = {use}"


def number_program_of(seed: int) -> NumberProgram:
    """Return the program of a seed: always the same one."""
    drawing = _Drawing(seed)
    for _ in range(drawing.random.choice((1, 2, 2, 3))):
        drawing.named.append(drawing.number())
    sized = [n for n in drawing.named if n.place == "size"]
    lines = tuple(drawing.line(k) for k in range(drawing.random.choice((1, 1, 2, 2, 3))))
    dtype = drawing.random.choice(
        (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16)
    )
    numbers = tuple(n if n not in sized[1:] else replace(n, values=sized[0].values) for n in drawing.named)
    return NumberProgram(
        numbers,
        lines,
        dtype,
        drawing.random.random() < 0.35,
        drawing.random.choice((None, None, None, True, False)),
    )


def smaller_number_programs(program: NumberProgram) -> Iterator[NumberProgram]:
    """Yield programs that are one step simpler."""
    for k in range(len(program.lines) if len(program.lines) > 1 else 0):
        yield replace(program, lines=program.lines[:k] + program.lines[k + 1 :])
    text = " ".join(program.lines)
    for number in program.numbers:
        if number.name not in text:
            yield replace(program, numbers=tuple(n for n in program.numbers if n != number))
        elif number.place != "argument":
            plain = replace(number, place="argument")
            yield replace(program, numbers=tuple(plain if n == number else n for n in program.numbers))
    if program.gradients:
        yield replace(program, gradients=False)
