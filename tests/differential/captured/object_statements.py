"""Statements of captured programs over Python's objects: dataclasses, iterators, attributes, and classes of modules."""

from __future__ import annotations

from differential.captured.names import Names
from differential.captured.statements import any_number, kind, whole_number


@kind(5)
def iterators(names: Names) -> str:
    """Loops, comprehensions and functions of iterators."""
    x = names.pick("nm", "m", "n", "")
    y = names.pick(x.shape)
    k, form = whole_number(names), names.choose(0, 9)
    exact = x.is_exact and y.is_exact and form not in (2, 4)
    name = names.define(x.shape, max(x.degree, y.degree) if exact else -1)
    return (
        f"{name} = next(t for t in reversed(({x.name}, {y.name}))) + {k}",
        f"{name} = functools.reduce(torch.add, [{x.name}, {y.name}, {x.name}])",
        f"{name} = [t for j, t in enumerate(itertools.accumulate(({x.name}, {y.name}), torch.mul)) if j][0]",
        f"j, {name} = 0, {x.name}\nwhile j < abs({k}) % 4:\n    j += 1\n    {name} = {name} + j",
        f"{name} = {x.name}\nfor key, value in {{'p': 2, 'q': n}}.items():\n    {name} = {name} * value",
        f"first, *rest = {x.name}, {y.name}, {k}\n{name} = first + rest[0] - rest[-1]",
        f"{name} = sum(map(lambda t, j: t * j, ({x.name}, {y.name}), itertools.count(1)))",
        f"q = collections.deque([{x.name}], maxlen=2)\nq.append({y.name})\n{name} = q.popleft() + len(q)",
        f"{name} = {x.name} + {y.name} if all(t.dim() < 3 for t in ({x.name}, {y.name})) else {x.name}",
        f"{name} = max(({x.name}, 1), ({y.name}, n), key=lambda pair: pair[1])[0] + 1",
    )[form]


@kind(5)
def objects(names: Names) -> str:
    """Dataclasses, named tuples, and attributes that are read and set by name."""
    x = names.pick("nm", "m", "n", "")
    k, form = whole_number(names), names.choose(0, 9)
    if form == 0:
        return "options.steps += 1"
    degree = -1 if form in (2, 6, 7) or not x.is_exact else x.degree
    name = names.define(x.shape, degree)
    return (
        "",
        f"{name} = {x.name} + dataclasses.replace(options, steps={k}).steps",
        f"{name} = {x.name} * options.scale",
        f"{name} = {x.name} + getattr(self, 'k') - by",
        f"setattr(self, 'k', {k})\n{name} = {x.name} - self.k",
        f"{name} = {x.name} + (self.missing if hasattr(self, 'missing') else {k})",
        f"{name} = self.scaled({x.name}, by=by)",
        f"match n:\n    case 2:\n        {name} = {x.name} * 2.5\n    case _ if flag:\n        {name} = {x.name} + 1\n"
        f"    case _:\n        {name} = {x.name} * by",
        f"first, second = Point({x.name}, {k})\n{name} = first + second",
        f"with Added({k}) as added:\n    {name} = added({x.name})",
    )[form]


@kind(4)
def submodules(names: Names) -> str:
    """Loops over submodules, and writes of their buffers and of parts of buffers."""
    x = names.pick("nm")
    m = names.pick("m")
    form = names.choose(0, 7)
    if form >= 4:
        return (
            f"self.seen[1:] += {whole_number(names)}",
            f"self.seen.view(2, 2)[0].mul_(2)\nself.seen[-1] = {m.name}.detach().sum()",
            f"self.seen.lerp_({m.name}.detach().to(self.seen.dtype), 0.5)",
            "self.count.add_(n)\nself.k = self.k + (1 if self.training else 0)",
        )[form - 4]
    name = names.define("nm", -1)
    return (
        f"{name} = {x.name}\nfor layer in self.stack:\n    {name} = layer({name}) + {name}",
        f"{name} = {x.name} + sum(p.sum() for p in self.stack.parameters())",
        f"{name} = self.stack[n % 2]({x.name})",
        f"{name} = self.stack[-1]({x.name}) * len(self.stack)",
    )[form]


@kind(4)
def gradients(names: Names) -> str:
    """Custom gradients of two results and of a write in place, and what depends on whether gradients are wanted."""
    x = names.pick("nm")
    form = names.choose(0, 5)
    name = names.define("nm", -1)
    return (
        f"{name}, unused = Split.apply({x.name}, self.v)",
        f"{name} = sum(Split.apply({x.name}, self.v))",
        f"{name} = Written.apply({x.name} * 1)",
        f"{name} = {x.name} * (2 if torch.is_grad_enabled() else 3)",
        f"{name} = ({x.name} * self.v).detach() + {x.name} * {any_number(names)}",
        f"{name} = checkpoint(lambda t, s: F.dropout(t * s, 0.4, self.training), {x.name}, n, use_reentrant=False)",
    )[form]


@kind(3)
def exceptions(names: Names) -> str:
    """Exceptions of Python that are caught, and assertions."""
    x = names.pick("nm", "m", "n", "")
    form = names.choose(0, 3)
    if form == 0:
        return f"assert {x.name}.dim() < 3, f'{{{x.name}.shape}} has too many dimensions'"
    name = names.define(x.shape, x.degree)
    return (
        "",
        f"try:\n    {name} = {x.name} + {{'p': 1}}[n]\nexcept KeyError:\n    {name} = {x.name} - 2",
        f"try:\n    {name} = {x.name} + (1, 2)[n]\nexcept (IndexError, TypeError) as error:\n    {name} = {x.name} - 2",
        f"with contextlib.suppress(AttributeError):\n    {x.name}.missing()\n{name} = {x.name} + 1",
    )[form]
