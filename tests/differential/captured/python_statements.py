"""Statements of captured programs that are about Python and about torch's modes."""

from __future__ import annotations

from differential.captured.names import Names
from differential.captured.statements import any_number, kind, whole_number


def _define(names: Names, shape: str, degree: int) -> str:
    return names.define(shape, degree, writable=names.chance(20))


@kind(5)
def containers(names: Names) -> str:
    """Lists, dictionaries and tuples that are built, changed and read."""
    x = names.pick("nm", "m", "n", "")
    y = names.pick(x.shape)
    k, form = whole_number(names), names.choose(0, 6)
    name = _define(names, x.shape, max(x.degree, y.degree) if x.is_exact and y.is_exact and form != 2 else -1)
    return (
        f"parts = [{x.name}, {y.name}]\nparts.append({x.name} + {k})\n{name} = parts[-1] - parts[1]",
        f"d = {{'x': {x.name}, 'y': {y.name}}}\nd['x'] = d['x'] + d.pop('y')\n{name} = d['x']",
        f"{name} = sum(p * q for p, q in zip([{x.name}, {y.name}], range(1, 3)))",
        f"point = Point({x.name}, {k})\n{name} = point._replace(first=point.first + {y.name}).first - point.second",
        f"{name} = torch.stack([each + j for j, each in enumerate(({x.name}, {y.name}))]).sum(0)",
        f"total = [{x.name}]\nfor j in range(abs({k}) % 3):\n    total += [total[-1] + {y.name}]\n{name} = total[-1]",
        f"{name} = {{**{{'p': {x.name}}}, 'q': {y.name}}}.get('p' if flag else 'q')",
    )[form]


@kind(4)
def argument_containers(names: Names) -> str:
    """Reads and changes of the containers that the caller passes."""
    x = names.pick("nm", "m", "n", "")
    form = names.choose(0, 4)
    if form < 2:
        return (f"items.append({x.name})", f"table['k{names.choose(0, 2)}'] = {x.name}")[form]
    name = names.define("nm", -1)
    return (
        f"{name} = "
        + ("items[0] * 2", "table['x'] + len(table)", "a * len(items) + items[-1].sum()")[form - 2]
    )


@kind(5)
def closures(names: Names) -> str:
    """Functions that are defined, and read or change what is around them."""
    x = names.pick("nm", "m", "n", "")
    k, form = whole_number(names), names.choose(0, 5)
    name = _define(names, x.shape, -1 if form in (1, 5) or not x.is_exact else x.degree + (form == 2))
    return (
        f"def shifted(t, by={k}):\n    return t + by\n{name} = twice(shifted, {x.name})",
        f"j = 0\ndef step(t):\n    nonlocal j\n    j += 1\n    return t * j\n{name} = step(step({x.name}))",
        f"{name} = (lambda t, s=n: t * s)({x.name})",
        f"{name} = functools.partial(torch.add, {x.name}, alpha=2)({x.name})",
        f"def each():\n    for j in range(2):\n        yield {x.name} + j\n{name} = sum(each())",
        f"fs = [lambda t, j=j: t.sin() * j for j in range(3)]\n{name} = fs[1]({x.name}) + fs[2]({x.name})",
    )[form]


@kind(6)
def branches(names: Names) -> str:
    """Branches on arguments, attributes, sizes, and values of exact tensors."""
    x = names.pick("nm", "m", "n", "")
    decision = names.one(
        (
            "flag",
            "n > 2",
            "self.training",
            "f > 0.6",
            "a.shape[0] > 4",
            "self.k == 2",
            "a.requires_grad",
            "len(items) > 1",
        )
    )
    if names.chance(25):
        y = names.pick("nm", "m", "n", exact=True)
        decision = names.one(
            (f"{y.name}.sum() > 3", f"bool(({y.name} > 0).any())", f"{y.name}.sum().item() > 0")
        )
    name = _define(names, x.shape, -1 if not x.is_exact else x.degree + 1)
    return f"if {decision}:\n    {name} = {x.name} * 2\nelse:\n    {name} = {x.name} - 1"


@kind(4)
def breaks(names: Names) -> str:
    """Graph breaks, and calls that are not compiled."""
    x = names.pick("nm", "m", "n", "", exact=names.chance(60))
    form = names.choose(0, 4)
    if form == 0:
        return "torch._dynamo.graph_break()"
    if form == 1:
        return f"note({x.name}, n)"
    if form == 2 or not x.is_exact:
        return f"{names.define(x.shape, x.degree)} = note({x.name}) + 1"
    y = names.pick(exact=True)
    name = names.define(x.shape, x.degree)
    number = f"float({y.name}.sum())" if form == 3 else f"int({y.name}.sum().item()) % 5"
    return f"{name} = {x.name} + {number}"


@kind(5)
def transforms(names: Names) -> str:
    """``vmap``, ``grad`` and other transforms of functions."""
    x, k = names.pick("nm"), any_number(names)
    form, shape = names.one(
        (
            ("torch.vmap(lambda r: (r * 2).sum() + {k})({x})", "n"),
            ("torch.func.grad(lambda t: (t.sin() * t).sum() * {k})({x})", "nm"),
            ("torch.vmap(torch.func.grad(lambda r: (r ** 2).sum()))({x})", "nm"),
            ("torch.func.jvp(lambda t: t.cos(), ({x},), (torch.ones_like({x}),))[1]", "nm"),
            ("torch.vmap(lambda r, s: r @ self.w.detach() + s, (0, None))({x}, {k})", "nm"),
            ("torch.func.vjp(lambda t: t * t, {x})[1](torch.ones_like({x}))[0]", "nm"),
            ("torch.func.grad(lambda w: ({x}.detach() @ w).tanh().sum())(self.v.detach())", "m"),
            ("torch.vmap(lambda c: c.cumsum(0), 1, 1)({x})", "nm"),
            ("torch.func.grad_and_value(lambda t: (t ** 3).sum())({x})[0] + {k}", "nm"),
        )
    )
    return f"{names.define(shape, -1)} = {form.format(x=x.name, k='(' + k + ')')}"


@kind(5)
def modes(names: Names) -> str:
    """Parts without gradients, under autocast, checkpointed, or of a function with its own gradient."""
    x = names.pick("nm")
    form = names.choose(0, 5)
    name = names.define("nm", -1)
    return (
        f"with torch.no_grad():\n    {name} = {x.name} * 2 + self.v",
        "with torch.autocast(a.device.type, torch.bfloat16, enabled=flag):\n"
        f"    {name} = ({x.name} @ self.w).to(a.dtype)",
        f"{name} = checkpoint(lambda t: (t @ self.w).tanh() * n, {x.name}, use_reentrant=False)",
        f"{name} = Scaled.apply({x.name}, {names.one(('n', '2.0', '0.5', 'self.s'))})",
        f"with torch.enable_grad():\n    {name} = {x.name} * self.v",
        f"with torch.set_grad_enabled(flag):\n    {name} = {x.name} + self.v * f",
    )[form]


@kind(4)
def hooks(names: Names) -> str:
    """Hooks on intermediates, which autograd calls with None where there is no gradient."""
    x = names.pick("nm", "m", "n", "")
    k, change = any_number(names), names.one(("g * 2", "g + s"))
    hook = f"lambda g, s={k}: g if g is None else {change}"
    return f"if {x.name}.requires_grad and not {x.name}.is_leaf:\n    {x.name}.register_hook({hook})"


@kind(4)
def state(names: Names) -> str:
    """Writes to buffers and attributes of the module."""
    x = names.pick("m", "nm")
    value = f"{x.name}.detach()" + (".sum(0)" if x.shape == "nm" else "")
    return names.one(
        (
            f"self.seen.add_({value}.to(self.seen.dtype))",
            "self.count += 1",
            f"self.seen = {value} * 1",
            "self.k = self.k + 1",
            f"self.last = {x.name}.detach() + 0",
            "self.seen.mul_(0.5)",
            f"with torch.no_grad():\n    self.seen.copy_({value})",
        )
    )


@kind(2)
def caught(names: Names) -> str:
    """Exceptions that are raised and caught, and ``finally``."""
    x = names.pick("nm", "m", "n", "")
    name = names.define(x.shape, x.degree)
    return (
        f"try:\n    if n > 3:\n        raise ValueError('large')\n    {name} = {x.name} + 1\n"
        f"except ValueError:\n    {name} = {x.name} - 1\nfinally:\n    table['tried'] = n"
    )
