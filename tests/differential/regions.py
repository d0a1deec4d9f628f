"""Programs of regions inside regions: branches, loops, scans, maps, repeated and checkpointed functions."""

from __future__ import annotations

import linecache
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

COLUMNS, FLAGS = 3, 5
"""Columns of every matrix, and elements of the integers that decide."""
ROWS = (4, 6)
"""Rows of the matrix in each call; programs of fixed sizes have the first number in all."""
CALLS = 3
"""Calls of a program, whose integers differ so that other branches run."""
DEPTH = 4
"""Most regions inside one another."""

Mode = Literal["forward", "gradients", "saved"]
Type = Literal["matrix", "row", "number", "integer"]
"""Kinds of tensors: f32 of shapes (n, 3), (3,) and (), and i64 without dimensions. Only integers decide, since floats
depend on rounding."""

_HEAD = """\
import torch
from torch._higher_order_ops import associative_scan, map as map_rows, scan, while_loop
from torch.utils.checkpoint import checkpoint
"""

_FORMS: Mapping[Type, tuple[str, ...]] = MappingProxyType(
    {
        "matrix": (
            "torch.sin({matrix})", "{matrix} * 0.5 + {matrix}", "{matrix} + {row}", "{matrix} * {number}",
            "{matrix}.cos() * {row}", "{matrix} @ w", "{matrix}.flip(0) - {row}", "{matrix}.cumsum(0) * 0.25",
            "torch.softmax({matrix}, 0)", "{matrix} / {matrix}.shape[0]",
            "{row}.expand({matrix}.shape[0], 3) * {matrix}",
            "torch.tanh({matrix}).t().t() + 1", "{matrix} * ({integer} % 3)",
        ),
        "row": (
            "{row}.sin()", "{row} * 0.5 + {row}", "{matrix}.sum(0) * 0.25", "{matrix}.mean(0)", "{row} * {number}",
            "{row}.softmax(0)", "{matrix}[0] - {row}", "{row} @ w", "{row}.flip(0) + 1", "{row} + {integer} % 2",
            "{number}.expand(3) + {row}",
        ),
        "number": ("torch.tanh({row}.sum())", "{matrix}.mean()", "{number} * 0.5 + {number}", "{row}[1] * {number}"),
        "integer": ("{integer} + 1", "{integer} * 2 + {integer}"),
    }
)  # fmt: skip
"""Expressions of each type, over names of the types in braces. Each is a new tensor, no alias."""


_ADDED: Mapping[Type, Mapping[Type, str]] = MappingProxyType(
    {
        "matrix": {},
        "row": {"matrix": " + {}.mean(0)"},
        "number": {"matrix": " + {}.mean()", "row": " - {}.sum()"},
    }
)
"""Ends of expressions of a type that add a value of another one; values that broadcast to the type are added alone."""


@dataclass(frozen=True, slots=True)
class Line:
    """One assignment. ``text`` calls the ``functions`` by their names."""

    target: str
    text: str
    functions: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A function: its parameters, lines and returned expression. ``invoked`` functions are defined outside."""

    name: str
    parameters: tuple[str, ...]
    lines: tuple[Line, ...]
    result: str
    invoked: bool = False

    def source(self, indent: str = "") -> Iterator[str]:
        """Yield the lines of the function, those inside before their callers."""
        if self.invoked:
            yield f"{indent}@torch.compiler.nested_compile_region"
        yield f"{indent}def {self.name}({', '.join(self.parameters)}):"
        for line in self.lines:
            for inner in line.functions:
                if not inner.invoked:
                    yield from inner.source(indent + "    ")
            yield f"{indent}    {line.target} = {line.text}"
        yield f"{indent}    return {self.result}"

    def invoked_inside(self) -> Iterator[Block]:
        """Yield the functions below this one that are defined outside, callers last."""
        for line in self.lines:
            for inner in line.functions:
                yield from inner.invoked_inside()
                if inner.invoked:
                    yield inner


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """A function of a matrix ``x``, a row ``r``, weights ``w`` and integers ``k``, and the way that it is run."""

    body: Block
    mode: Mode = "forward"
    dynamic: bool = False

    def source(self) -> str:
        """Return the program as Python."""
        blocks = {each.name: each for each in (*self.body.invoked_inside(), self.body)}
        return "\n".join([_HEAD, *("\n".join(each.source()) + "\n" for each in blocks.values())])

    def function(self) -> Callable[..., Any]:
        """Return the compiled Python function, with its source available to tracebacks."""
        text, file = self.source(), "<regions>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {}
        exec(compile(text, file, "exec"), namespace)
        made: Callable[..., Any] = namespace[self.body.name]
        return made

    def arguments(self, call: int) -> tuple[Tensor, ...]:
        """Return fresh arguments of a call, leaves where gradients are asked for."""
        rows = ROWS[call % len(ROWS)] if self.dynamic else ROWS[0]
        generator = torch.Generator(torch.get_default_device()).manual_seed(call)
        shapes = ((rows, COLUMNS), (COLUMNS,), (COLUMNS, COLUMNS))
        floats = [torch.rand(shape, generator=generator) * 2 - 1 for shape in shapes]
        for each in floats:
            each.requires_grad_(self.mode == "gradients")
        return (*floats, torch.randint(0, 8, (FLAGS,), generator=generator))

    def as_text(self) -> str:
        """Return the program with the way that it is run, for a report."""
        return f"# {self.mode}{', dynamic sizes' if self.dynamic else ''}\n{self.source()}"


_ARGUMENTS: Mapping[str, Type] = MappingProxyType({"x": "matrix", "r": "row"})
_PARAMETERS = ("x", "r", "w", "k")
"""Parameters of the program, and of functions that are defined outside."""


@dataclass(slots=True)
class _Scope:
    """The names that a block may read, by type; inner blocks read those of outer ones too."""

    names: dict[str, Type]

    def inside(self, parameters: Mapping[str, Type]) -> _Scope:
        return _Scope({**self.names, **parameters})


@dataclass(slots=True)
class _Drawing:
    """Draws the blocks of one program."""

    random: random.Random
    count: int = 0
    repeated: list[tuple[Block, Type]] = field(default_factory=list)
    """Functions defined outside with the types of their results, which later lines may call again."""

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def name(self, scope: _Scope, type_: Type) -> str:
        """Draw a name of a type, or an expression where there is none; later names are likelier."""
        names = [name for name, each in scope.names.items() if each == type_]
        if type_ == "integer" and (not names or self.chance(30)):
            return f"k[{self.random.randrange(FLAGS)}]"
        if not names:
            return "r.sum()"
        return names[-1] if self.chance(60) else self.random.choice(names)

    def expression(self, scope: _Scope, type_: Type) -> str:
        form = self.random.choice(_FORMS[type_])
        return re.sub(r"\{(\w+)\}", lambda found: self.name(scope, found[1]), form)  # type: ignore[arg-type]  # a type

    def condition(self, scope: _Scope) -> str:
        integer = self.name(scope, "integer")
        return self.random.choice((f"({integer} + {self.random.randrange(3)}) % 2 == 0", f"{integer} > 3"))

    def block(
        self, scope: _Scope, parameters: Mapping[str, Type], results: Sequence[Type], depth: int
    ) -> Block:
        """Draw a function of ``parameters`` that returns ``results``, with regions up to ``depth`` inside it."""
        inside, lines = scope.inside(parameters), []
        if self.chance(40):
            lines.append(self.line(inside))
        if depth:
            lines.append(self.region(inside, depth - 1))
        last = lines[-1].target if lines else ""
        if self.chance(25):
            lines.append(self.line(inside))
        returned = [self.expression(inside, each) for each in results]
        if last and inside.names[last] != "integer":
            returned[0] += _ADDED[results[0]].get(inside.names[last], " + {}").format(last)
        result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
        return Block(self.fresh("f"), tuple(parameters), tuple(lines), result)

    def line(self, scope: _Scope) -> Line:
        """Draw a plain assignment and add its target to the scope."""
        type_: Type = self.random.choice(("matrix", "row", "number", "integer"))
        return self._defined(scope, type_, self.expression(scope, type_))

    def _defined(self, scope: _Scope, type_: Type, text: str, *functions: Block) -> Line:
        target = self.fresh("t")
        scope.names[target] = type_
        return Line(target, text, functions)

    def region(self, scope: _Scope, depth: int) -> Line:
        """Draw a region and add its result to the scope."""
        return self.random.choice(_REGIONS if depth == 0 else _REGIONS[:-2])(self, scope, depth)

    # --- kinds of regions ------------------------------------------------------------------------------------

    def branches(self, scope: _Scope, depth: int) -> Line:
        type_ = self._float()
        given = self.fresh("a")
        depths = self.random.choice(((depth, 0), (0, depth), (depth, depth // 2)))
        yes, no = (self.block(scope, {given: type_}, (type_,), each) for each in depths)
        operand = self.name(scope, type_)
        text = f"torch.cond({self.condition(scope)}, {yes.name}, {no.name}, ({operand},))"
        return self._defined(scope, type_, text, yes, no)

    def loop(self, scope: _Scope, depth: int) -> Line:
        type_, steps = self._float(), self.random.randrange(4)
        counter, given = self.fresh("i"), self.fresh("a")
        inside = scope.inside({counter: "integer"})
        body = self.block(inside, {given: type_}, (type_,), depth)
        body = replace(body, parameters=(counter, given), result=f"({counter} + 1, {body.result})")
        test = f"lambda {counter}, {given}: {counter} < {self.random.choice((str(steps), 'k[0] % 4'))}"
        start = f"(torch.zeros((), dtype=torch.int64), {self.name(scope, type_)} * 1)"
        return self._defined(scope, type_, f"while_loop({test}, {body.name}, {start})[1]", body)

    def scanned(self, scope: _Scope, depth: int) -> Line:
        carried: Type = self.random.choice(("row", "matrix", "number"))
        along: Type = self.random.choice(("row", "number"))
        parameters: dict[str, Type] = {self.fresh("c"): carried, self.fresh("v"): "row"}
        body = self.block(scope, parameters, (carried, along), depth)
        carries = along == "number" or self.chance(40)
        start = self.name(scope, carried)
        reverse = ", reverse=True" if self.chance(30) else ""
        call = f"scan({body.name}, {start} * 1, {self.name(scope, 'matrix')} * 1{reverse})[{0 if carries else 1}]"
        return self._defined(scope, carried if carries else "matrix", call, body)

    def mapped(self, scope: _Scope, depth: int) -> Line:
        parameters: dict[str, Type] = {self.fresh("v"): "row", self.fresh("a"): "row"}
        body = self.block(scope, parameters, ("row",), depth)
        call = f"map_rows({body.name}, {self.name(scope, 'matrix')} * 1, {self.name(scope, 'row')} * 1)"
        return self._defined(scope, "matrix", call, body)

    def associative(self, scope: _Scope, depth: int) -> Line:
        combine = self.random.choice(("a + b", "a * b", "torch.maximum(a, b)"))
        given = self.name(scope, "matrix")
        text = f"associative_scan(lambda a, b: {combine}, {given}, 0, combine_mode='generic')"
        return self._defined(scope, "matrix", text)

    def invocation(self, scope: _Scope, depth: int) -> Line:
        """Call a function that is compiled once: a new one, or one that was called before."""
        if not self.repeated or self.chance(60):
            returned = self._float()
            drawn = self.block(_Scope({}), _ARGUMENTS, (returned,), depth)
            self.repeated.append((replace(drawn, parameters=_PARAMETERS, invoked=True), returned))
        block, type_ = self.random.choice(self.repeated)
        given = f"{self.name(scope, 'matrix')}, {self.name(scope, 'row')}"
        return self._defined(scope, type_, f"{block.name}({given}, w, k)", block)

    def checkpointed(self, scope: _Scope, depth: int) -> Line:
        type_, given = self._float(), self.fresh("a")
        # torch refuses most regions inside checkpoints.
        body = self.block(scope, {given: type_}, (type_,), 0)
        text = f"checkpoint({body.name}, {self.name(scope, type_)}, use_reentrant=False)"
        return self._defined(scope, type_, text, body)

    def _float(self) -> Type:
        return self.random.choice(("matrix", "matrix", "row", "number"))


_REGIONS: tuple[Callable[[_Drawing, _Scope, int], Line], ...] = (
    _Drawing.branches, _Drawing.branches, _Drawing.loop, _Drawing.scanned, _Drawing.mapped, _Drawing.invocation,
    _Drawing.checkpointed, _Drawing.associative,
)  # fmt: skip
"""Kinds of regions, the likeliest twice. The last two have no region inside."""

_DEPTHS = (*(1,) * 4, *(2,) * 5, *(3,) * 2, DEPTH)
"""Depths of programs, by their share. torch traces a region again for each one around it, most of the time."""

_MODES: tuple[Mode, ...] = (*("forward",) * 9, *("gradients",) * 10, "saved")
"""Ways to run a program, by their share: what is saved is compiled as a whole model."""


def regions_of(seed: int) -> RegionProgram:
    """Draw the program of a seed."""
    drawing = _Drawing(random.Random(seed))
    mode = drawing.random.choice(_MODES)
    results = [drawing._float() for _ in range(drawing.random.randrange(1, 3))]
    body = drawing.block(_Scope({}), _ARGUMENTS, results, drawing.random.choice(_DEPTHS))
    body = replace(body, name="program", parameters=_PARAMETERS)
    return RegionProgram(body, mode, drawing.chance(40))


# --- smaller programs ------------------------------------------------------------------------------------------


def smaller_regions(drawn: RegionProgram) -> Iterator[RegionProgram]:
    """Yield programs with a line less, or a region less: a plain value of the same type in its place."""
    for body in _smaller_blocks(drawn.body):
        yield replace(drawn, body=body)
    if drawn.dynamic:
        yield replace(drawn, dynamic=False)


def _smaller_blocks(block: Block) -> Iterator[Block]:
    for position, line in enumerate(block.lines):
        before, after = block.lines[:position], block.lines[position + 1 :]
        rest = " ".join([block.result, *(text for each in after for text in _texts(each))])
        if not re.search(rf"\b{line.target}\b", rest):
            yield replace(block, lines=before + after)
        if line.functions:
            for value in ("x.sin()", "r.sin()", "r.sum()"):
                yield replace(block, lines=(*before, Line(line.target, value), *after))
        for number, inner in enumerate(line.functions):
            for other in _smaller_blocks(inner):
                functions = (*line.functions[:number], other, *line.functions[number + 1 :])
                yield replace(block, lines=(*before, replace(line, functions=functions), *after))


def _texts(line: Line) -> Iterator[str]:
    """Yield the expressions of a line and of the functions that it calls."""
    yield line.text
    for inner in line.functions:
        yield inner.result
        for each in inner.lines:
            yield from _texts(each)
