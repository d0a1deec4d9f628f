"""Generator of captured programs from a seed or from Hypothesis."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from differential.captured import object_statements, python_statements, tensor_statements  # noqa: F401  add kinds
from differential.captured.names import Names
from differential.captured.program import Call, CapturedProgram, Mode
from differential.captured.statements import KINDS
from differential.scope import Choose

MODES: tuple[Mode, ...] = (
    ("grad",) * 5 + ("no_grad",) * 4 + ("inference",) * 2 + ("autocast", "autocast_no_grad")
)
UNSAVED = re.compile(
    r"note\(|graph_break|\.item\(\)|bool\(|\b(float|int)\((t|a|b|self)\b|yield|table\[|items\.append|\.sum\(\) >"
    r"|torch\.func\b|vmap|self\.(count|seen|last|k) \+?="
    r"|options|\bby\b|tolist|unique|nonzero|masked_select|int\(i|> 0\]|setattr|Added|suppress|Split|Written|key="
)
"""Parts of statements that a program which is saved does not have, since torch does not save them: graph breaks,
changes of arguments and attributes, transforms."""
SYMBOLIC_FLOAT = re.compile(r"\bf\b")
"""The float argument, which torch does not save where it is dynamic."""


def captured_of(seed: int) -> CapturedProgram:
    """Return the program of a seed: always the same one. Every fifth is that of the seed before with its calls in
    reverse order, whose graphs are in the cache then."""
    program = draw_captured(random.Random(seed - (seed % 5 == 4)).randint)
    return replace(program, calls=program.calls[::-1]) if seed % 5 == 4 else program


def draw_captured(choose: Choose) -> CapturedProgram:
    """Draw a module, its statements and its calls."""
    names = Names(choose)
    for name, shape in (("a", "nm"), ("b", "m")):
        names.define(shape, 0, writable=name == "b", name=name)
    names.define("m", -1, name="self.v")
    names.define("m", -1, name="self.seen")
    kinds = [make for weight, make in KINDS for _ in range(weight)]
    saved = names.chance(8)
    dynamic = names.one((None, None, None, None, True, False))
    statements: list[str] = []
    length = choose(4, 12)
    while len(statements) < length:
        before = list(names.variables)
        try:
            text = names.one(kinds)(names)
        except LookupError:
            text = ""
        if text and not (saved and _is_unsaved(text, dynamic)):
            statements.append(text)
        else:
            names.variables = before
    text = "\n".join(statements)
    defined = [v.name for v in names.variables if f"{v.name} = " in text]
    results = [names.one((defined or ["a"])[-6:]) for _ in range(choose(1, 4))]
    if names.chance(30):
        results.append(
            names.one(
                (
                    "n",
                    "f",
                    "flag",
                    "None",
                    "self.k",
                    "{'a': a}",
                    "(b, n)",
                    "a.shape[0]",
                    "a[1:]",
                    "self.count",
                    "a",
                    "b",
                    "items[0]",
                    "self.v",
                    "self.seen",
                    "(a.t(), b[1:])",
                    "Point(a.shape, n)",
                    "options.steps",
                    "by",
                    "a.dtype",
                )
            )
        )
    calls = _calls(names, saved, text)
    return CapturedProgram(_attributes(names), tuple(statements), tuple(results), calls, dynamic, saved)


def _is_unsaved(text: str, dynamic: bool | None) -> bool:
    """Report that a program with this statement cannot be saved."""
    return bool(UNSAVED.search(text) or (dynamic and SYMBOLIC_FLOAT.search(text)))


def _attributes(names: Names) -> tuple[str, ...]:
    frozen = names.one(("True", "True", "False"))
    lines = [
        f"self.w = nn.Parameter(filled((4, 4), {names.choose(0, 9)}) / 4, requires_grad={frozen})",
        f"self.v = nn.Parameter(filled((4,), {names.choose(0, 9)}) / 2)",
        f"self.register_buffer('seen', filled((4,), {names.choose(0, 9)}))",
        "self.register_buffer('count', torch.tensor(0))",
        f"self.k, self.s = {names.choose(1, 3)}, {names.one((0.5, 1.5, 2.0))}",
        "self.layer = nn.Linear(4, 4)\nself.norm = nn.LayerNorm(4)\nself.last = None\nseeded(self)",
        names.one(("self.inner = Inner()", "self.inner = Inner()", "self.inner = torch.add")),
        "self.stack = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])\nseeded(self)",
    ]
    if names.chance(20):
        lines.append(
            "self.layer = nn.Sequential(self.layer, nn.ReLU(), nn.BatchNorm1d(4, eps=0.1), nn.Dropout(0.25))\n"
            "seeded(self)"
        )
    if names.chance(15):
        lines.append("self.layer.weight = self.w")
    if names.chance(15):
        lines.append("self.register_forward_hook(lambda module, inputs, output: [*output, module.count + 1])")
    if names.chance(10):
        lines.append("self.layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))")
    if names.chance(10):
        lines.append("self.v.register_hook(lambda g: None if g is None else g * 3)")
    return tuple(lines)


def _calls(names: Names, saved: bool, text: str) -> tuple[Call, ...]:
    """Draw the calls of a program with these statements, in inference mode only if none of them enables gradients:
    Dynamo traces these as if they had an effect there."""
    modes = tuple(mode for mode in MODES if mode != "inference" or "enable" not in text)
    size, mode, double = names.one((3, 4, 5, 6, 8)), names.one(modes), False
    calls = []
    for k in range(1 if saved else names.choose(2, 4)):
        if k and names.chance(50):
            size = names.one((1, 2, 3, 4, 5, 6, 7, 9, 17, 40))
        if k and names.chance(30):
            mode = names.one(modes)
        before = _before(names) if k else []
        if k and names.chance(10):
            double = not double
            before.append(f"module.to(torch.{'float64' if double else 'float32'})")
        keywords = () if saved else _keywords(names)
        calls.append(Call(_arguments(names, size, mode, double), tuple(before), mode, keywords))
    return tuple(calls)


def _arguments(names: Names, size: int, mode: Mode, double: bool) -> tuple[str, ...]:
    cast = ".double()" if double else ""
    layout = names.one(
        ("filled(({n}, 4), {s})",) * 5
        + (
            "filled((4, {n}), {s}).t()",
            "filled(({n} * 2, 4), {s})[::2]",
            "filled(({n}, 5), {s})[:, 1:]",
            "filled((4,), {s}).expand({n}, 4)",
        )
    )
    a = layout.format(n=size, s=names.choose(0, 30)) + cast
    if mode in ("grad", "autocast") and names.chance(60):
        a = f"leaf({a})"
    index = [
        names.choose(-size, size - 1) if names.chance(20) else names.choose(0, size - 1)
        for _ in range(names.choose(1, 3))
    ]
    items = ", ".join(f"filled(({size}, 4), {names.choose(0, 30)}){cast}" for _ in range(names.choose(1, 2)))
    b = f"filled((4,), {names.choose(0, 30)}){cast}"
    if names.chance(3):
        a, b = f"(same := {a.removeprefix('leaf')})", "same[0]"
    elif names.chance(6):
        a, items = f"(same := {a})", "same, " + items
    return (
        a,
        b,
        f"torch.tensor({[each % size for each in index]})",
        str(names.one((2, 2, 3, 1, 5, 0, -1))),
        str(names.one((0.5, 0.5, 0.25, 1.5, 2.0, 1.0, -0.75))),
        names.one(("True", "True", "False")),
        f"[{items}]",
        f"{{'x': filled(({size}, 4), {names.choose(0, 30)}){cast}}}",
    )


def _keywords(names: Names) -> tuple[tuple[str, str], ...]:
    """Draw the keyword arguments of a call; those that it does not have are at their default."""
    options = f"Options({names.choose(1, 3)}, {names.one((0.5, 1.5, 2.0))})"
    drawn = (("options", options), ("by", names.one(("2", "3", "-1", "0.5"))))
    return tuple(each for each in drawn if names.chance(40))


def _before(names: Names) -> list[str]:
    """Draw what the program does between two calls."""
    texts = (
        "module.k = module.k + 1",
        "module.s = -module.s",
        "module.eval()",
        "module.train()",
        "module.v.data.mul_(2)",
        "with torch.no_grad(): module.w.add_(0.25)",
        "module.seen = filled((4,), 3).to(module.v.dtype)",
        "optimizer.step()",
        "optimizer.zero_grad()",
        "module.w.requires_grad_(not module.w.requires_grad)",
        "module.inner = Inner()",
        "HANDLES.append(module.layer.register_forward_hook(lambda m, i, o: o * 2))",
        "HANDLES and HANDLES.pop().remove()",
        "module.load_state_dict({k: v * 1 + 1 for k, v in module.state_dict().items()})",
        "module.layer.bias = None",
        "module.v = nn.Parameter(module.v.detach().clone() + 1)",
        "module.last = None",
        "module.count.zero_()",
        "module.v.requires_grad_(not module.v.requires_grad)",
        "for p in module.layer.parameters(): p.requires_grad_(False)",
        "module.zero_grad(set_to_none=False)",
        "module.stack.append(nn.Identity())",
        "module.stack[0].weight.data = module.stack[0].weight.data.t()",
        "module.missing = 2",
        "module.layer.eval()",
        "module.seen.resize_(4).fill_(2)",
        "torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)",
    )
    return [names.one(texts) for _ in range(names.one((0, 0, 1, 1, 2)))]
