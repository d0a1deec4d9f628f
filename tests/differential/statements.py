"""Statements of generated programs: a table of kinds, each of which proposes a line for the tensors at hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from differential.pieces import (
    broadcasts,
    dimension,
    fits,
    index_vector,
    number,
    operand,
    permutation,
    subscript,
)
from differential.programs import Statement, is_inexact
from differential.scope import Scope

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
SAME_SIZE = {
    torch.complex64: (torch.float32,),
    torch.complex128: (torch.float64,),
    torch.float32: (torch.int32,),
    torch.int32: (torch.float32,),
    torch.float64: (torch.int64, torch.float32, torch.int32),
    torch.int64: (torch.float64, torch.int32, torch.uint8),
    torch.bfloat16: (torch.int16,),
    torch.uint8: (torch.bool, torch.int8),
    torch.bool: (torch.uint8,),
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A statement; ``rough`` when its result is not exact even where its operands are."""

    statement: Statement
    rough: bool = False


Kind = Callable[[Scope], Proposal | None]
KINDS: list[tuple[str, int, Kind]] = []
"""Family, weight and maker of each kind."""
Maker = Callable[[Scope, str, torch.Tensor], Proposal | None]
"""Proposes a statement on a tensor, given its name and value."""


def _anything(t: torch.Tensor) -> bool:
    return True


def kind(
    family: str, weight: int, accept: Callable[[torch.Tensor], bool] = _anything, *, exact: bool = False
) -> Callable[[Maker], Maker]:
    """Add a maker to the table, for tensors that satisfy a condition."""

    def add(make: Maker) -> Maker:
        def propose(scope: Scope) -> Proposal | None:
            name = scope.pick(accept, exact=exact)
            return None if name is None else make(scope, name, scope[name])

        KINDS.append((family, weight, propose))
        return make

    return add


def _new(scope: Scope, text: str, *, rough: bool = False) -> Proposal:
    return Proposal(Statement(text, target=scope.fresh()), rough)


def _write(text: str, name: str, *, rough: bool = False) -> Proposal:
    return Proposal(Statement(text, writes=name), rough)


def _small_rank(t: torch.Tensor) -> bool:
    return 1 <= t.dim() <= 4 and 0 < t.numel() and max(t.shape) <= 40


# --- views ----------------------------------------------------------------------------------------------


@kind("view", 30, lambda t: t.dim() > 0)
def basic_index(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    return _new(scope, f"{name}[{subscript(scope, x)}]")


@kind("view", 22, lambda t: t.dim() >= 2)
def rearranged(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    a, b = dimension(scope, x), dimension(scope, x)
    order = permutation(scope, x.dim())
    texts = [f"transpose({a}, {b})", f"permute({order})", f"movedim({a}, {b})", "mT"]
    texts += ["t()", "T"] if x.dim() == 2 else []
    return _new(scope, f"{name}.{scope.one(texts)}")


@kind("view", 22)
def regrouped(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    n = x.numel()
    shapes: list[tuple[int, ...]] = [(n,), (-1,)] if n else [(0,), (0, 3), (2, 0)]
    shapes += [(d, n // d) for d in (2, 3, 4, 6) if n and n % d == 0]
    shapes += [(d, -1, e) for d in (1, 2) for e in (2, 3) if n and n % (d * e) == 0]
    shape = scope.one(shapes)
    texts = [f"view({shape})", f"view({shape})", f"reshape({shape})", "flatten()", "squeeze()"]
    texts += (
        [f"squeeze({dimension(scope, x)})", f"unsqueeze({dimension(scope, x)})"]
        if x.dim()
        else ["unsqueeze(0)"]
    )
    return _new(scope, f"{name}.{scope.one(texts)}")


@kind("view", 20, lambda t: t.dim() > 0 and t.numel() > 0)
def part(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    d = dimension(scope, x)
    size = x.shape[d]
    start = scope.choose(0, size - 1)
    length = scope.choose(1, size - start)
    texts = [
        f"select({d}, {start})",
        f"narrow({d}, {start}, {length})",
        f"chunk(2, {d})[{0 if size == 1 else scope.choose(0, 1)}]",
        f"split({length}, {d})[0]",
        f"unbind({d})[{start}]",
        f"unfold({d}, {length}, {scope.choose(1, 2)})",
    ]
    if x.dim() >= 2:
        texts.append(
            f"diagonal({scope.choose(-1, 1)}, {scope.choose(-x.dim(), -1)}, {scope.choose(0, x.dim() - 1)})"
        )
        texts.append("diagonal()")
    return _new(scope, f"{name}.{scope.one(texts)}")


@kind("view", 8, lambda t: t.dim() <= 3 and t.numel() < 2000)
def expanded(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    sizes = [-1 if s != 1 or scope.chance(40) else scope.choose(1, 5) for s in x.shape]
    if scope.chance(50) or not sizes:
        sizes.insert(0, scope.choose(1, 4))
    return _new(scope, f"{name}.expand({', '.join(map(str, sizes))})")


@kind("view", 7, lambda t: 0 < t.numel() <= 4000)
def by_strides(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """``as_strided`` inside the memory that the tensor itself spans."""
    first = x.storage_offset()
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
    rank = scope.choose(1, 3)
    strides = [scope.choose(0 if scope.chance(10) else 1, 6) for _ in range(rank)]
    offset, last_offset, sizes = scope.choose(0, min(3, span - 1)), 0, []
    last_offset = span - 1 - offset
    for stride in strides:
        most = last_offset // stride if stride else 2
        sizes.append(1 + scope.choose(0, min(most, 5)))
        last_offset -= (sizes[-1] - 1) * stride
    where = f", {first + offset}" if first + offset or scope.chance(50) else ""
    return _new(scope, f"{name}.as_strided({tuple(sizes)}, {tuple(strides)}{where})")


@kind("view", 8, lambda t: t.dtype in SAME_SIZE, exact=True)
def other_dtype(scope: Scope, name: str, x: torch.Tensor) -> Proposal | None:
    if is_inexact(x.dtype) and bool(x.isnan().any()):
        return None
    return _new(scope, f"{name}.view({scope.one(SAME_SIZE[x.dtype])})")


@kind("view", 5)
def same_again(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    if x.is_complex() and scope.chance(70):
        texts = (f"torch.view_as_real({name})", f"{name}.real", f"{name}.imag", f"{name}.conj()")
        return _new(scope, scope.one(texts))
    return _new(
        scope, f"{name}.{scope.one(('detach()', f'view_as({name})', f'view({name}.shape)', 'contiguous()'))}"
    )


# --- copies ---------------------------------------------------------------------------------------------


@kind("copy", 24, _small_rank)
def copied(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    d, e = dimension(scope, x), dimension(scope, x)
    texts = [
        "clone()", "clone()", f"flip({d})", f"flip({d})", "contiguous()", f"roll({scope.choose(-2, 2)}, {d})",
        f"roll({scope.choose(0, 2)})", f"repeat({', '.join(['2'] + ['1'] * (x.dim() - 1))})",
        f"repeat_interleave(2, {d})", f"index_select({d}, {index_vector(scope, x.shape[d])})",
        f"take(torch.tensor([0, {x.numel() - 1}]))", f"cumsum({d})" if x.dtype != torch.bool else "clone()",
    ]  # fmt: skip
    if not x.is_complex():
        texts.append(f"sort({d})[0]")  # a library reads the strides of its operand
    if x.dim() >= 2:
        texts += [f"tril({scope.choose(-1, 1)})", f"triu({scope.choose(-1, 1)})"]
        if d % x.dim() != e % x.dim():
            texts.append(f"rot90({scope.choose(1, 3)}, ({d}, {e}))")
    return _new(scope, f"{name}.{scope.one(texts)}")


@kind("copy", 6, lambda t: t.numel() > 0, exact=True)
def converted(scope: Scope, name: str, x: torch.Tensor) -> Proposal | None:
    dtype = scope.one((*FLOATS, *INTEGERS, torch.bool))
    if is_inexact(x.dtype) and not dtype.is_floating_point and not bool(x.isfinite().all()):
        return None
    if dtype == torch.uint8 and is_inexact(x.dtype) and bool((x.real < 0).any()):
        return None  # what becomes of a negative number is not defined
    return _new(scope, f"{name}.to({dtype})")


@kind("copy", 5, lambda t: t.numel() <= 4000)
def made(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    texts = (
        f"torch.zeros_like({name})", f"torch.full_like({name}, {number(scope, x.dtype)})",
        f"{name}.new_zeros({tuple(x.shape)})", f"torch.empty_like({name}).copy_({name})",
    )  # fmt: skip
    return _new(scope, scope.one(texts))


@kind("copy", 10, _small_rank)
def joined(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    d = scope.choose(0, x.dim() - 1)

    def fits(t: torch.Tensor) -> bool:
        return (
            t.dim() == x.dim()
            and t.dtype == x.dtype
            and all(k == d or a == b for k, (a, b) in enumerate(zip(t.shape, x.shape)))
        )

    other = scope.pick(fits) or name
    if scope[other].shape == x.shape and scope.chance(30):
        return _new(scope, f"torch.stack([{name}, {other}], {d})")
    if scope.chance(20):
        return _new(scope, f"torch.cat([{other}.flip({d}), {name}, {other}], {d})")
    return _new(scope, f"torch.cat([{name}, {other}], {d})")


@kind("copy", 7, lambda t: _small_rank(t) and t.dtype != torch.bool)
def padded(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    amounts = [scope.choose(-1 if x.shape[-1] > 2 else 0, 2), scope.choose(0, 2)]
    if x.dim() >= 2 and scope.chance(50):
        amounts += [scope.choose(0, 2), scope.choose(0, 1)]
    return _new(scope, f"F.pad({name}, {amounts}, value={number(scope, x.dtype)})")


# --- pointwise and reductions ---------------------------------------------------------------------------


@kind("pointwise", 30)
def combined(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    other = operand(scope, name)
    if x.dtype == torch.bool:
        return _new(scope, f"{name} {scope.one(('|', '&', '^'))} ({other} != 0)")
    sign = scope.one(("+", "-", "*", "+"))
    texts = [f"{name} {sign} {other}"] * 3
    if other in scope.tensors:
        texts.append(f"torch.{scope.one(('maximum', 'minimum'))}({name}, {other})")
        if x.dtype.is_floating_point and scope[other].dtype == x.dtype:
            texts.append(f"torch.lerp({name}, {other}, 0.5)")
            texts.append(f"torch.addcmul({name}, {other}, {other}, value=0.5)")
    return _new(scope, scope.one(texts))


@kind("pointwise", 14, lambda t: t.dtype != torch.bool)
def mapped(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    if is_inexact(x.dtype) and scope.chance(40):
        return _new(scope, f"{name}.{scope.one(('sin()', 'tanh()', 'sigmoid()', 'exp()'))}", rough=True)
    texts = ["neg()", "abs()", "relu()", "clamp(0, 3)", "square()", "sign()"]
    if x.dtype in INTEGERS:
        texts += ["bitwise_not()", "bitwise_and(3)", "add(1)"]
    return _new(scope, f"{name}.{scope.one(texts)}")


@kind("pointwise", 12, exact=True)
def chosen(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    mask = scope.pick(lambda t: t.dtype == torch.bool and broadcasts(t.shape, x.shape), exact=True)
    condition = mask or f"({name} {scope.one(('>', '<=', '==', '!='))} {operand(scope, name, exact=True)})"
    value = number(scope, x.dtype)
    texts = (
        condition,
        f"torch.where({condition}, {name}, {value})",
        f"{name}.masked_fill({condition}, {value})",
    )
    return _new(scope, scope.one(texts))


@kind("reduce", 22, lambda t: t.dim() > 0 and t.numel() > 0)
def reduced(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    d = dimension(scope, x)
    keep = scope.one((f"({d})", f"({d}, keepdim=True)"))
    texts = [f"sum{keep}", f"sum{keep}", f"amax{keep}", f"amin{keep}"]
    if x.dtype.is_floating_point:
        texts += [f"mean{keep}", f"var{keep}", f"softmax({d})"]
    text = scope.one(texts)
    return _new(scope, f"{name}.{text}", rough=text.startswith(("mean", "var", "softmax")))


@kind("reduce", 10, lambda t: t.dim() > 0 and t.numel() > 0, exact=True)
def decided(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """Reductions whose result is an index or a bool."""
    d = dimension(scope, x)
    texts = [f"any({d})", f"all({d})", "any()", f"count_nonzero({d})"]
    if x.dtype != torch.bool:
        texts += [
            f"argmax({d})",
            f"argmin({d})",
            f"max({d})[0]",
            f"max({d})[1]",
            f"min({d}).values",
            "argmax()",
        ]
    return _new(scope, f"{name}.{scope.one(texts)}")


# --- scatters and gathers -------------------------------------------------------------------------------


def _source(scope: Scope, name: str, shape: tuple[int, ...]) -> str:
    """Return a tensor of a shape and of the dtype of ``name``: a view of an existing one, or a new one."""
    dtype = scope[name].dtype
    found = scope.pick(lambda t: tuple(t.shape) == shape and t.dtype == dtype)
    if found is not None and scope.chance(70):
        return f"{found}.clone()" if scope.chance(40) or found == name else found
    return f"torch.full({shape}, {number(scope, dtype)}, dtype={dtype})"


@kind("scatter", 16, lambda t: _small_rank(t) and t.dtype != torch.bool)
def scattered(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """Index operations that return a new tensor, or write in place."""
    d = scope.choose(0, x.dim() - 1)
    size = x.shape[d]
    place = "_" if scope.chance(50) else ""
    unique = index_vector(scope, size, unique=True)
    count = unique.count(",") + 1
    shape = (*x.shape[:d], count, *x.shape[d + 1 :])
    source = _source(scope, name, shape)
    spread = f"{unique}.reshape({[count if k == d else 1 for k in range(x.dim())]}).expand({shape})"
    twice = index_vector(scope, size, count)
    texts = [
        f"index_add{place}({d}, {twice}, {source})",
        f"index_copy{place}({d}, {unique}, {source})",
        f"index_fill{place}({d}, {unique}, {number(scope, x.dtype)})",
        f"scatter{place}({d}, {spread}, {source})",
        f"scatter{place}({d}, {spread}, {number(scope, x.dtype)})",
        f"scatter_add{place}({d}, {spread}, {source})",
    ]
    if d == 0:
        texts.append(f"index_put{place}(({twice},), {source}, accumulate=True)")
    if x.dtype.is_floating_point:
        texts.append(f'scatter_reduce{place}({d}, {spread}, {source}, "amax")')
    text = f"{name}.{scope.one(texts)}"
    return _write(text, name) if place else _new(scope, text)


@kind("scatter", 8, _small_rank)
def gathered(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    d = scope.choose(0, x.dim() - 1)
    twice = index_vector(scope, x.shape[d], 3)
    wide = f"{twice}.reshape({[3 if k == d else 1 for k in range(x.dim())]})"
    shape = (*x.shape[:d], 3, *x.shape[d + 1 :])
    colons = ", ".join([":"] * d + [twice])
    return _new(scope, scope.one((f"{name}.gather({d}, {wide}.expand({shape}))", f"{name}[{colons}]")))


@kind("scatter", 8, lambda t: _small_rank(t) and t.dim() >= 2)
def embedded(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """Copies of a tensor with a view replaced by another tensor."""
    d = scope.choose(0, x.dim() - 1)
    k = scope.choose(0, x.shape[d] - 1)
    without = (*x.shape[:d], *x.shape[d + 1 :])
    part = (*x.shape[:d], x.shape[d] - k, *x.shape[d + 1 :])
    along = tuple(x.diagonal().shape)
    texts = (
        f"{name}.select_scatter({_source(scope, name, without)}, {d}, {k})",
        f"{name}.slice_scatter({_source(scope, name, part)}, {d}, {k})",
        f"{name}.diagonal_scatter({_source(scope, name, along)})",
    )
    return _new(scope, scope.one(texts))


# --- writes ---------------------------------------------------------------------------------------------


@kind("write", 40)
def updated(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    other = operand(scope, name)
    if x.dtype == torch.bool:
        combined = f"logical_or_({other} != 0)" if other in scope.tensors else "fill_(True)"
        text = scope.one(
            ("logical_not_()", combined, f"{'copy' if other in scope.tensors else 'fill'}_({other})")
        )
        return _write(f"{name}.{text}", name)
    texts = [f"add_({other})"] * 3 + [f"sub_({other})", f"mul_({other})"] + [f"copy_({other})"] * 3
    if other in scope.tensors and x.dtype.is_floating_point and scope[other].dtype == x.dtype:
        texts += [f"lerp_({other}, 0.5)", f"addcmul_({other}, {other}, value=0.5)", f"add_({other}, alpha=2)"]
    text = scope.one(texts)
    if text.startswith("copy_") and not re.match(r"[at]\d", other):
        text = f"fill_({other})"
    return _write(f"{name}.{text}", name)


@kind("write", 16)
def reset(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    texts = ["zero_()", f"fill_({number(scope, x.dtype)})"]
    if x.dtype != torch.bool:
        texts += ["neg_()", "abs_()", "relu_()", "clamp_(-1, 2)", "square_()"]
        texts += [f"cumsum_({dimension(scope, x)})"] if x.dim() else []
    if x.dim() >= 2:
        texts += ["tril_()", "triu_(1)"]
        texts += [f"fill_diagonal_({number(scope, x.dtype)})"] if x.dim() == 2 and x.is_contiguous() else []
    return _write(f"{name}.{scope.one(texts)}", name)


@kind("write", 30, lambda t: t.dim() > 0)
def assigned(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """An assignment to a subscript."""
    where = subscript(scope, x)
    piece = eval(f"x[{where}]", {"x": x})
    other = scope.pick(lambda t: broadcasts(t.shape, piece.shape) and fits(t.dtype, x.dtype))
    value = number(scope, x.dtype) if other is None or scope.chance(20) else other
    if other is not None and value == other and scope[other].dim() and scope.chance(30):
        value = f"{other}.flip(0)"
    sign = "=" if x.dtype == torch.bool else scope.one(("=", "=", "+=", "*=", "-="))
    return _write(f"{name}[{where}] {sign} {value}", name)


@kind("write", 14, exact=True)
def masked(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    mask = scope.pick(lambda t: t.dtype == torch.bool and t.shape == x.shape, exact=True)
    condition = mask or f"({name} {scope.one(('>', '<=', '!='))} {operand(scope, name, exact=True)})"
    value = number(scope, x.dtype)
    if scope.chance(50) or condition != mask:
        return _write(f"{name}.masked_fill_({condition}, {value})", name)
    return _write(f"{name}[{condition}] = {value}", name)


@kind("write", 14, _small_rank)
def put(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """An assignment under an index tensor."""
    d = scope.choose(0, x.dim() - 1)
    unique = index_vector(scope, x.shape[d], unique=True)
    count = unique.count(",") + 1
    where = ", ".join([":"] * d + [unique])
    shape = (*x.shape[:d], count, *x.shape[d + 1 :])
    value = _source(scope, name, shape)
    if scope.chance(30) and value in scope.tensors and scope[value].dim():
        value = f"{value}.flip(0)"
    sign = "=" if x.dtype == torch.bool else scope.one(("=", "+=", "="))
    return _write(f"{name}[{where}] {sign} {value}", name)


@kind("write", 7, lambda t: is_inexact(t.dtype))
def by_list(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """Foreach operations in place, and ``out=``."""
    other = scope.pick(lambda t: t.dtype == x.dtype and t.shape == x.shape) or name
    texts = [
        f"torch._foreach_add_([{name}], [{other}])",
        f"torch._foreach_mul_([{name}], 2)",
        f"torch._foreach_copy_([{name}], [{other}.clone()])",
        f"torch.add({other}, {number(scope, x.dtype)}, out={name})",
    ]
    if x.dim():
        texts.append(f"torch._foreach_add_([{name}], [{other}.flip(0)])")
    return _write(scope.one(texts), name)


@kind("write", 5, lambda t: t.dim() >= 1)
def reshaped_in_place(scope: Scope, name: str, x: torch.Tensor) -> Proposal:
    """In-place operations on sizes and strides."""
    texts = [f"unsqueeze_({dimension(scope, x)})", f"squeeze_({dimension(scope, x)})"]
    texts += [
        f"transpose_({dimension(scope, x)}, {dimension(scope, x)})",
        "t_()" if x.dim() == 2 else "squeeze_()",
    ] * 2
    return _write(f"{name}.{scope.one(texts)}", name)
