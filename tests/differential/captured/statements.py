"""Statements of captured programs: each kind draws its text and defines the names that it assigns."""

from __future__ import annotations

from collections.abc import Callable

from differential.captured.names import Names

Kind = Callable[[Names], str]
KINDS: list[tuple[int, Kind]] = []


def kind(weight: int) -> Callable[[Kind], Kind]:
    """Add a kind of statement, drawn with this weight."""

    def add(make: Kind) -> Kind:
        KINDS.append((weight, make))
        return make

    return add


def whole_number(names: Names) -> str:
    """Draw an int: a literal, an argument, an attribute, or arithmetic of sizes."""
    return names.one(
        (
            "2",
            "-1",
            "3",
            "n",
            "n",
            "self.k",
            "a.shape[0]",
            "n // 2",
            "(n + 1) % 3",
            "len(items)",
            "a.shape[0] - n",
            "max(n, self.k)",
            "int(flag)",
            "n * 2 - 1",
            "(n & 3)",
            "abs(n - 4)",
        )
    )


def any_number(names: Names) -> str:
    """Draw a number: an int or a float."""
    if names.chance(50):
        return whole_number(names)
    return names.one(
        ("f", "f", "0.5", "self.s", "f * 2", "f + n", "n / 2", "-self.s", "min(f, 1.5)", "float(n)")
    )


def _result(names: Names, text: str, shape: str, degree: int) -> str:
    return f"{names.define(shape, degree, writable=degree >= -1 and names.chance(30))} = {text}"


@kind(10)
def with_a_number(names: Names) -> str:
    """Arithmetic with a Python number."""
    x = names.pick()
    k = any_number(names)
    form, cost = names.one(
        (("{x} + {k}", 0), ("{x} * {k}", 1), ("{k} - {x}", 0), ("{x} / 2 + {k}", 0), ("{x} - {k}", 0))
    )
    return _result(names, form.format(x=x.name, k=f"({k})"), x.shape, x.degree + cost if x.is_exact else -1)


@kind(10)
def of_two(names: Names) -> str:
    """Arithmetic of two tensors whose shapes broadcast."""
    x = names.pick("nm", "m", "n", "")
    y = names.pick(x.shape, "", *(("m",) if x.shape == "nm" else ()))
    form, product = names.one(
        (("{x} + {y}", 0), ("{x} - {y}", 0), ("{x} * {y}", 1), ("torch.add({x}, {y}, alpha=2)", 0))
    )
    degree = (
        (x.degree + y.degree + 1 if product else max(x.degree, y.degree)) if x.is_exact and y.is_exact else -1
    )
    return _result(names, form.format(x=x.name, y=y.name), x.shape, degree)


@kind(6)
def selected(names: Names) -> str:
    """Selections, which exact values alone may decide."""
    x = names.pick("nm", "m", "n", exact=True)
    k = whole_number(names)
    form = names.one(
        (
            "torch.where({x} > ({k}), {x}, -{x})",
            "{x}.clamp(min=({k}))",
            "{x}.relu()",
            "torch.maximum({x}, {x}.flip(0))",
            "{x}.masked_fill({x} == ({k}), 7)",
            "{x}.sort(0).values",
            "({x} > ({k})).to({x}.dtype)",
            "{x}.abs()",
            "{x}.clamp(-2, 2)",
        )
    )
    return _result(names, form.format(x=x.name, k=k), x.shape, x.degree)


@kind(8)
def smooth(names: Names) -> str:
    """Functions whose values are rounded."""
    x = names.pick("nm", "m", "n", "")
    form = names.one(
        (
            "{x}.sin()",
            "F.gelu({x})",
            "{x}.tanh() * 2",
            "torch.sigmoid({x})",
            "F.softplus({x})",
            "{x}.exp().clamp(max=50.0)",
            "F.leaky_relu({x}, f)",
            "F.elu({x})",
            "({x} * {x} + 1).rsqrt()",
            "F.dropout({x}, 0.4, self.training)",
            "torch.cos({x}) + f",
        )
    )
    return _result(names, form.format(x=x.name), x.shape, -1)


@kind(8)
def reduced(names: Names) -> str:
    """Reductions and scans."""
    x = names.pick("nm", exact=names.chance(40))
    form, shape, exact = names.one(
        (
            ("{x}.sum(0)", "m", True),
            ("{x}.sum(1)", "n", True),
            ("{x}.sum()", "", True),
            ("{x}.mean(1)", "n", False),
            ("{x}.cumsum(0)", "nm", True),
            ("{x}.amax(1)", "n", True),
            ("{x}.softmax(1)", "nm", False),
            ("{x}.logsumexp(1)", "n", False),
            ("{x}.var(1)", "n", False),
            ("F.layer_norm({x}, (4,))", "nm", False),
            ("{x}.norm()", "", False),
            ("{x}.cumsum(1)", "nm", True),
        )
    )
    return _result(names, form.format(x=x.name), shape, x.degree if exact and x.is_exact else -1)


@kind(8)
def multiplied(names: Names) -> str:
    """Matmuls and layers of the module."""
    x = names.pick("nm")
    form, shape = names.one(
        (
            ("{x} @ self.w", "nm"),
            ("F.linear({x}, self.w, self.v)", "nm"),
            ("self.layer({x})", "nm"),
            ("{x} @ self.v", "n"),
            ("self.norm({x})", "nm"),
            ("{x}.t() @ {x} @ self.v", "m"),
            ("self.inner({x}, f)", "nm"),
            ("torch.einsum('ij,jk->ik', {x}, self.w)", "nm"),
        )
    )
    return _result(names, form.format(x=x.name), shape, -1)


@kind(9)
def written(names: Names) -> str:
    """Writes in place, of all or of a part."""
    x = names.pick(writable=True)
    k = whole_number(names)
    y = names.pick(x.shape, "") if x.shape != "?" else names.pick("")
    rank = {"nm": 2, "m": 1, "n": 1}.get(x.shape, 0)
    whole = (
        f"{x.name}.add_({k})",
        f"{x.name} *= 2",
        f"{x.name}.copy_({y.name})",
        f"{x.name} += {y.name}",
        f"{x.name}.neg_()",
    )
    parts = (
        f"{x.name}[1:] += {k}",
        f"{x.name}[0] = {k}",
        f"{x.name}[::2].mul_(-1)",
        f"{x.name}[-1:].zero_()",
        f"{x.name}[:n].sub_(f)",
    )
    columns = (
        f"{x.name}[:, 1] = {k}",
        f"{x.name}[:, ::2] += 1",
        f"{x.name}.t()[0].add_(1)",
        f"{x.name}[..., -1:].fill_(n)",
        f"{x.name}.view(-1)[:3].zero_()",
    )
    text = names.one(whole + parts * (rank > 0) + columns * (rank > 1))
    if (y.name in text and not y.is_exact) or "f)" in text:
        names.forget_exactness(x.name)
    return text


@kind(6)
def viewed(names: Names) -> str:
    """Views, which share memory with what they are of."""
    x = names.pick("nm", "m", "n")
    forms: tuple[tuple[str, str], ...] = (
        ("{x}[1:]", "?"),
        ("{x}[::2]", "?"),
        ("{x}.flip(0)", x.shape),
        ("{x}.view_as({x})", x.shape),
        ("{x}.clone()", x.shape),
    )
    if x.shape == "nm":
        forms += (
            ("{x}.t()", "?"),
            ("{x}[:, 1:3]", "?"),
            ("{x}[:, 0]", "n"),
            ("{x}.reshape(-1)", "?"),
            ("{x}.unsqueeze(1).squeeze(1)", "nm"),
            ("{x}.split(2, 1)[1]", "?"),
            ("{x}.detach()", "nm"),
        )
    form, shape = names.one(forms)
    name = names.define(
        shape,
        x.degree,
        writable=x.writable and "flip" not in form and "reshape" not in form and names.chance(70),
    )
    return f"{name} = {form.format(x=x.name)}"


@kind(5)
def indexed(names: Names) -> str:
    """Gathers and scatters by the index argument."""
    x = names.pick("nm")
    form, shape = names.one(
        (
            ("{x}[i]", "?"),
            ("{x}.index_select(0, i)", "?"),
            ("{x}.index_add(0, i, {x}[i])", "nm"),
            ("{x}[i].sum(0)", "m"),
            ("{x}.gather(1, i[:1, None] % 4)", "?"),
            ("torch.zeros_like({x}).index_put((i,), {x}[i], accumulate=True)", "nm"),
            ("F.embedding(i, {x})", "?"),
            ("{x}[i, 0] * n", "?"),
        )
    )
    return _result(names, form.format(x=x.name), shape, x.degree if x.is_exact else -1)


@kind(5)
def created(names: Names) -> str:
    """Tensors that the graph makes from sizes and numbers."""
    form, shape = names.one(
        (
            ("torch.full((4,), {k}).to(a.dtype)", "m"),
            ("torch.arange(4).to(a.dtype) * {k}", "m"),
            ("a.new_ones(a.shape[0]) * {k}", "n"),
            ("torch.zeros_like(a) + {k}", "nm"),
            ("torch.tensor({k}, dtype=a.dtype)", ""),
            ("torch.arange(a.shape[0]).to(a.dtype)", "n"),
            ("torch.tensor([n, 1, 2, 3]).to(a.dtype)", "m"),
            ("torch.full((), f).to(a.dtype)", ""),
            ("torch.ones(4, 4).to(a.dtype).tril()[1] * {k}", "m"),
        )
    )
    return f"{names.define(shape, 0, writable=True)} = {form.format(k='(' + whole_number(names) + ')')}"
