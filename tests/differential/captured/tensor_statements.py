"""Statements of captured programs over tensors: joins, parts, comparisons, narrow dtypes, losses and random numbers."""

from __future__ import annotations

from differential.captured.names import Names
from differential.captured.statements import any_number, kind, whole_number


def _define(names: Names, shape: str, degree: int) -> str:
    return names.define(shape, degree, writable=names.chance(20))


@kind(5)
def chosen(names: Names) -> str:
    """Selections between tensors and Python numbers, and arithmetic of bools and integers."""
    x = names.pick("nm", "m", "n", exact=True)
    k = whole_number(names)
    form, cost = names.one(
        (
            ("torch.where({x} > ({k}), {x}, 0)", 0),
            ("torch.where({x} > ({k}), 2, {x})", 0),
            ("torch.where({x} > ({k}), 1.0, 0.0).to({x}.dtype)", 0),
            ("torch.where({x} > ({k}), f, {x})", 1),
            ("(({x} > 0) & ({x} < ({k}))).to({x}.dtype)", 0),
            ("({x}.long() // 2 + {x}.long() % 3).to({x}.dtype)", 0),
            ("({x} > 0).sum(0, keepdim=True) + {x}", 0),
            ("(~({x} == ({k})) | ({x} > 1)).to({x}.dtype)", 0),
            ("{x}.round().long().bitwise_and(3).to({x}.dtype)", 0),
            ("{x}.clamp(max=f)", 1),
            ("torch.floor({x} / 2) + ({k})", 0),
            ("{x}.sign() * ({k})", 0),
        )
    )
    return f"{_define(names, x.shape, x.degree + cost)} = {form.format(x=x.name, k=k)}"


@kind(5)
def joined(names: Names) -> str:
    """Concatenations, repeats, and parts of them."""
    x, y = names.pick("nm"), names.pick("nm")
    form, shape = names.one(
        (
            ("torch.cat([{x}, {y}])[:a.shape[0]]", "nm"),
            ("torch.cat([{x}, {y}], 1)", "?"),
            ("torch.cat([{x}[:1], {y}[1:]])", "nm"),
            ("torch.stack([{x}, {y}]).amax(0)", "nm"),
            ("torch.stack([{x}, {y}], 1)[:, n % 2]", "nm"),
            ("{x}.roll(n, 0)", "nm"),
            ("F.pad({x}, (0, 1, n & 1, 0))", "?"),
            ("{x}.repeat(2, 1)[::2]", "nm"),
            ("{x}.chunk(2, 1)[1]", "?"),
            ("{x}.unbind(1)[2]", "n"),
            ("{x}[:n]", "?"),
            ("{x}[-1:].expand(a.shape[0], 4)", "nm"),
            ("{x}.reshape(a.shape[0], 2, 2).transpose(1, 2).reshape(a.shape[0], 4)", "nm"),
            ("{x}[..., None, :].mul(2).squeeze(-2)", "nm"),
            ("{x}[{y}.shape[0] // 2]", "m"),
            ("{x}.repeat_interleave(2, 0)[: a.shape[0]]", "nm"),
            ("{x}.unfold(1, 2, 1)", "?"),
            ("{x}.diagonal()", "?"),
        )
    )
    degree = max(x.degree, y.degree) if x.is_exact and y.is_exact else -1
    return f"{names.define(shape, degree)} = {form.format(x=x.name, y=y.name)}"


@kind(4)
def picked_out(names: Names) -> str:
    """Positions of largest elements, masks, and reads at an index that follows from values."""
    x = names.pick("nm", exact=True)
    form, shape = names.one(
        (
            ("{x}[int(i[0])]", "m"),
            ("{x}[{x} > 0]", "?"),
            ("{x}[i.tolist()]", "?"),
            ("{x}.amax(0)", "m"),
            ("{x}.topk(2, 1).values", "?"),
            ("{x}.nonzero().to({x}.dtype)", "?"),
            ("F.one_hot(i, 40).to({x}.dtype)", "?"),
            ("{x}.index_copy(0, i[:1], {x}[:1])", "nm"),
            ("{x}.scatter(1, i[:1, None] % 4, 3.0)", "nm"),
            ("{x}.masked_select({x} > 1).sum()", ""),
            ("{x}.take_along_dim(i[:1, None] % 4, 1)", "?"),
            ("{x}.where({x} > 0, {x}.amin(0))", "nm"),
            ("torch.searchsorted(torch.arange(-9.0, 9.0), {x}.float()).to({x}.dtype)", "nm"),
            ("{x}.unique()", "?"),
        )
    )
    return f"{names.define(shape, x.degree)} = {form.format(x=x.name)}"


@kind(4)
def narrowed(names: Names) -> str:
    """Values of narrower dtypes."""
    x = names.pick("nm", "m", "n", "")
    form = names.one(
        (
            "{x}.bfloat16().mul(2).to(a.dtype)",
            "({x}.half() + {k}).to(a.dtype)",
            "({x}.to(torch.bfloat16) * {x}).to(a.dtype)",
            "{x}.clamp(-9, 9).to(torch.int8).mul(2).to(a.dtype)",
            "{x}.double().sin().to(a.dtype)",
            "({x} + torch.tensor(0.5, dtype=torch.float64)).to(a.dtype)",
        )
    )
    if x.degree < 0 and "int8" in form:
        raise LookupError("rounding decides nothing")
    return f"{names.define(x.shape, -1)} = {form.format(x=x.name, k='(' + any_number(names) + ')')}"


@kind(4)
def losses(names: Names) -> str:
    """Losses, normalisations, convolutions and attention."""
    x, y = names.pick("nm"), names.pick("nm")
    form, shape = names.one(
        (
            ("F.mse_loss({x}, {y})", ""),
            ("F.cross_entropy({x}, torch.arange(a.shape[0]) % 4)", ""),
            (
                "F.cross_entropy({x}, (torch.arange(a.shape[0]) + n) % 4, label_smoothing=0.1, reduction='none')",
                "n",
            ),
            ("F.smooth_l1_loss({x}, {y}, reduction='none')", "nm"),
            ("F.normalize({x}, dim=1)", "nm"),
            ("F.conv1d({x}[:, None], self.w[:1, None, :3].to({x}.dtype), padding=1)[:, 0]", "nm"),
            ("F.scaled_dot_product_attention({x}[None], {y}[None], {x}[None])[0]", "nm"),
            ("F.group_norm({x}, 2)", "nm"),
            ("F.kl_div({x}.log_softmax(1), {y}.softmax(1), reduction='batchmean')", ""),
            ("torch.addmm({x}, {y}, self.w.to({x}.dtype), beta=0.5)", "nm"),
            ("torch.cdist({x}, {y})[:, 0]", "n"),
            ("{x}.std(0)", "m"),
            ("F.avg_pool1d({x}[None], 2)[0]", "?"),
            ("F.max_pool1d({x}[None], 2)[0]", "?"),
            ("F.glu({x}, 1)", "?"),
        )
    )
    return f"{names.define(shape, -1)} = {form.format(x=x.name, y=y.name)}"


@kind(3)
def random_numbers(names: Names) -> str:
    """Draws of torch's generator."""
    x = names.pick("nm", "m", "n")
    form = names.one(
        (
            "{x} + torch.rand_like({x})",
            "{x} * torch.randn({x}.shape).to({x}.dtype)",
            "{x} * torch.bernoulli(torch.full_like({x}, 0.5))",
            "{x} + torch.randint(0, 3, {x}.shape)",
            "F.dropout({x}, min(abs(f), 0.9))",
            "{x}[torch.randperm({x}.shape[0])]",
        )
    )
    return f"{names.define(x.shape, -1)} = {form.format(x=x.name)}"
