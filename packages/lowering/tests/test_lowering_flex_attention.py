"""FlexAttention as loops whose bodies compute scores, against eager, and calls that are not lowered to loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given as given_by
from hypothesis import settings
from lowering_check import captured, check, check_gradients
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask

from litz_ir.loops import NamedCombiner, Pointwise, Reduction, Scatter
from litz_ir.scalar import Indirect, index, loads, nested_reductions
from litz_ir.symbols import Size, maximum, minimum, symbol
from litz_ir.text import to_text
from litz_lowering import LoweredGraph, LoweringOptions, lower

OPTIONS = LoweringOptions(nested_reductions=frozenset({"cpu"}), fallback="error")
QUERIES, KEYS = 12, 16

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Form:
    """A score function and a mask, with the tensors that each captures."""

    score: Function
    mask: Function
    captured: tuple[Tensor, ...] = ()
    seen: tuple[Tensor, ...] = ()


def plain(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return score


def everything(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return b.new_ones((), dtype=torch.bool)


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def same_document(b: Tensor, h: Tensor, m: Tensor, n: Tensor, number: Tensor) -> Tensor:
    return (m >= n) & (number[m] == number[n])


def second_half(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= QUERIES // 2) & (n < m)


def alibi(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor) -> Tensor:
    return score + (n - m) * slope[h]


def capped(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


def biased(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, m - n + KEYS]


def paged(
    score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, pages: Tensor, of_page: Tensor
) -> Tensor:
    return score * of_page[pages[b, n // 4]]


SLOPES, TABLE = torch.linspace(0.1, 0.4, 4), torch.linspace(-1, 1, 4 * 2 * KEYS).reshape(4, 2 * KEYS)
DOCUMENTS = torch.arange(KEYS) // 5
PAGES = (torch.arange(8) % 3).reshape(2, 4)
FORMS = {
    "plain": Form(plain, everything),
    "causal": Form(plain, causal),
    "nothing seen": Form(plain, second_half),
    "documents": Form(plain, same_document, (), (DOCUMENTS,)),
    "alibi": Form(alibi, causal, (SLOPES,)),
    "capped": Form(capped, everything),
    "biased": Form(biased, causal, (TABLE,)),
    "paged": Form(paged, everything, (PAGES, torch.tensor([0.5, 1.0, -1.0]))),
}


WHOLE = create_block_mask(lambda b, h, m, n: m == m, None, None, QUERIES, KEYS, device="cpu").as_tuple()


def lists(blocks: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Tensors of a block mask."""
    return tuple(each for each in blocks if isinstance(each, Tensor))


def operands(
    heads: int = 4, shared: int = 4, batch: int = 2, of_keys: int = 2, width: int = 8,
    dtype: torch.dtype = torch.float32, queries: int = QUERIES, keys: int = KEYS,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, heads, queries, 8), (of_keys, shared, keys, 8), (of_keys, shared, keys, width))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def attention(form: Form, blocks: tuple[Any, ...]) -> Callable[..., Any]:
    """The operator as torch calls it, as a function of queries, keys, values, the tensors of a block mask and
    captured tensors."""
    count = len(lists(blocks))

    def function(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given, others = iter(others[:count]), others[count:]
        captured, seen = others[: len(form.captured)], others[len(form.captured) :]
        mask = [next(given) if isinstance(each, Tensor) else each for each in blocks[:-1]]
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.higher_order.flex_attention(
            q, k, v, form.score, (*mask, form.mask), 0.5, {}, captured, seen
        )
        return found

    return function


def checked(form: Form, *given: Tensor, blocks: tuple[Any, ...] = WHOLE, **how: Any) -> LoweredGraph:
    others = (*lists(blocks), *form.captured, *form.seen)
    return check(attention(form, blocks), *given, *others, options=OPTIONS, **how)


def gradients(
    form: Form, *given: Tensor, blocks: tuple[Any, ...] = WHOLE, learned: bool = False, **how: Any
) -> None:
    """Check gradients, including those of captured tensors where ``learned``."""
    function, others = attention(form, blocks), (*lists(blocks), *form.captured, *form.seen)
    constants = 0 if learned else len(others)
    check_gradients(
        lambda *a: function(*a)[:2], *given, *others, constants=constants, options=OPTIONS, atol=1e-5, **how
    )


@pytest.mark.parametrize("name", FORMS)
def test_values(name: str) -> None:
    lowered = checked(FORMS[name], *operands())
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert (
        reduction.combiner == NamedCombiner("softmax_sum") and len(nested_reductions(*reduction.bodies)) == 1
    )


@pytest.mark.parametrize("name", FORMS)
def test_gradients(name: str) -> None:
    gradients(FORMS[name], *operands())


SHAPES = {
    "grouped": operands(shared=2),
    "one head of keys": operands(shared=1),
    "one batch of keys": operands(of_keys=1),
    "grouped, one batch of keys": operands(shared=2, of_keys=1),
    "wider values": operands(width=12),
    "heads last": tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands(shared=2)),
    "one query": (operands(shared=2)[0][:, :, :1], *operands(shared=2)[1:]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    checked(FORMS["alibi"], *SHAPES[name])
    gradients(FORMS["alibi"], *SHAPES[name])


@pytest.mark.parametrize("name", ["alibi", "documents", "plain"])
def test_symbolic_sizes(name: str) -> None:
    lowered = checked(FORMS[name], *operands(shared=2), dynamic=True)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert len(reduction.reduce_axes) == 1, "one block leaves nothing out, however long it is"
    gradients(FORMS[name], *operands(), dynamic=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_floats(dtype: torch.dtype) -> None:
    given = operands(shared=2, dtype=dtype)
    checked(FORMS["alibi"], *given, rounding=2e-2)
    gradients(FORMS["biased"], *given, rounding=6e-2)


def test_loop_graphs(golden: Callable[[str, str], None]) -> None:
    """Forward and backward with grouped heads, listed blocks and captured slopes."""
    blocks = create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=16).as_tuple()
    function = attention(FORMS["alibi"], blocks)
    given = [x.requires_grad_() for x in operands(shared=2, queries=32, keys=64, dtype=torch.bfloat16)]
    compiled, interpreted = captured(function, options=OPTIONS)
    compiled(*given, *lists(blocks), SLOPES)[0].sum().backward()
    forward, backward = (to_text(each.graph) for each in interpreted.lowered)
    golden("flex_attention_cases.txt", forward)
    golden("flex_attention_backward.txt", backward)


def captured_index(form: Form) -> tuple[Size, ...]:
    """Index at which the score function reads its first captured tensor."""
    lowered = checked(form, *operands())
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    inputs = [each.name for each in lowered.graph.inputs]
    return next(each.index for each in loads(*reduction.bodies) if each.buffer == inputs[-len(form.captured)])


def bucketed(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, (m - n).clamp(-3, 4) + 3]


def from_the_end(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
    return score + table[h, m - n]


def test_positions_are_index_terms() -> None:
    """An index in range is used directly; others are wrapped and checked as in eager."""
    h, m, n = symbol("i1"), symbol("i2"), symbol("r0")
    assert captured_index(FORMS["biased"]) == (h, m - n + KEYS)
    assert captured_index(Form(bucketed, everything, (TABLE[:, :8],))) == (
        h,
        minimum(maximum(m - n, -3), 4) + 3,
    )
    head, position = captured_index(Form(from_the_end, everything, (TABLE,)))
    assert head == h and isinstance(position, Indirect) and position.wrap and position.check == "raised"
    assert position.value == index(m - n)


# --- block masks ------------------------------------------------------------------------------------------


def window(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (m - n < 16)


def of_heads(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (m >= n) & (n >= 16 * h)


def of_batch(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (n + 16 * b >= m) | (m > 40)


MASKS: dict[str, tuple[Function, int | None, int | None, dict[str, Any]]] = {
    "causal": (causal, None, None, {}),
    "window": (window, None, None, {}),
    "heads": (of_heads, None, 4, {}),
    "batch": (of_batch, 2, None, {}),
    "batch and heads": (of_heads, 2, 4, {}),
    "grouped": (causal, None, None, {"shared": 2}),
    "grouped, of heads": (of_heads, None, 4, {"shared": 2}),
    "one batch of keys": (of_batch, 2, None, {"of_keys": 1}),
    "one batch of keys, grouped": (window, None, None, {"of_keys": 1, "shared": 1}),
}


@pytest.mark.parametrize("sizes", [(48, 64), (40, 56)], ids=["whole blocks", "a rest"])
@pytest.mark.parametrize("name", MASKS)
def test_sums_run_over_listed_blocks_only(name: str, sizes: tuple[int, int]) -> None:
    mask, batch, heads, how = MASKS[name]
    blocks = create_block_mask(mask, batch, heads, *sizes, device="cpu", BLOCK_SIZE=16).as_tuple()
    given = operands(queries=sizes[0], keys=sizes[1], **how)
    form = Form(capped, mask)
    lowered = checked(form, *given, blocks=blocks)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert [axis.size for axis in reduction.reduce_axes] == [4, 16]
    gradients(form, *given, blocks=blocks)


def test_unlisted_blocks_are_not_read() -> None:
    """Entries behind the listed ones are arbitrary."""
    blocks: list[Any] = list(
        create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=16).as_tuple()
    )
    beyond = torch.arange(4) >= blocks[2][..., None]
    blocks[3] = torch.where(beyond, 1 << 20, blocks[3]).to(torch.int32)
    checked(Form(plain, causal), *operands(queries=32, keys=64), blocks=tuple(blocks))


@pytest.mark.parametrize("size", [8, (16, 64), 128])
def test_block_lists_without_omissions_or_of_small_blocks_are_ignored(size: Any) -> None:
    blocks = create_block_mask(causal, None, None, 32, 64, device="cpu", BLOCK_SIZE=size).as_tuple()
    lowered = checked(Form(plain, causal), *operands(queries=32, keys=64), blocks=blocks)
    (reduction,) = (each for each in lowered.graph.operations if isinstance(each, Reduction))
    assert [axis.size for axis in reduction.reduce_axes] == [64]


# --- gradients of captured tensors --------------------------------------------------------------------------


def of_points(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[b, h, m, n]


def of_pairs(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[m, n]


def of_keys(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, bias: Tensor) -> Tensor:
    return score + bias[h, n]


def of_queries(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, gate: Tensor) -> Tensor:
    return score * gate[b, m]


def scaled(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, scale: Tensor) -> Tensor:
    return score * torch.exp(scale[h])


def tempered(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, temperature: Tensor) -> Tensor:
    return score * temperature[0]


def twice(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor, bias: Tensor) -> Tensor:
    return score * slope[h] + bias[m] * bias[n] + slope[h // 2]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


LEARNED = {
    "slopes": Form(alibi, causal, (SLOPES,)),
    "distances": Form(biased, causal, (TABLE,)),
    "distances from the end": Form(lambda *a: from_the_end(*a), causal, (TABLE,)),
    "buckets": Form(lambda *a: bucketed(*a), everything, (TABLE[:, :8].contiguous(),)),
    "points": Form(of_points, second_half, (drawn(2, 4, QUERIES, KEYS),)),
    "pairs": Form(of_pairs, causal, (drawn(QUERIES, KEYS),)),
    "keys": Form(of_keys, causal, (drawn(4, KEYS),)),
    "queries": Form(of_queries, everything, (drawn(2, QUERIES),)),
    "scales": Form(scaled, everything, (SLOPES,)),
    "temperature": Form(tempered, causal, (torch.tensor([0.7]),)),
    "pages": Form(paged, everything, (PAGES, torch.tensor([0.5, 1.0, -1.0]))),
    "several": Form(twice, causal, (drawn(4), drawn(KEYS))),
}


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_of_captured_tensors(name: str) -> None:
    gradients(LEARNED[name], *operands(), learned=True)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_captured_tensors_by_shape(name: str) -> None:
    for form in (LEARNED["slopes"], LEARNED["distances"], LEARNED["keys"]):
        gradients(form, *SHAPES[name], learned=True)


@pytest.mark.parametrize("sizes", [(48, 64), (40, 56)], ids=["whole blocks", "a rest"])
@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_captured_tensors_by_listed_blocks(name: str, sizes: tuple[int, int]) -> None:
    """Tables with an element for each point, for each distance and for each key."""
    mask, batch, heads, how = MASKS[name]
    blocks = create_block_mask(mask, batch, heads, *sizes, device="cpu", BLOCK_SIZE=16).as_tuple()
    given = operands(queries=sizes[0], keys=sizes[1], **how)

    def distant(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
        return score + table[h, m - n + 64]

    tables = ((distant, drawn(4, 128)), (of_points, drawn(2, 4, *sizes)), (of_keys, drawn(4, sizes[1])))
    for score, table in tables:
        gradients(Form(score, mask, (table,)), *given, blocks=blocks, learned=True)


@pytest.mark.parametrize("name", ["slopes", "distances", "points"])
def test_gradients_of_captured_tensors_of_other_dtypes_and_sizes(name: str) -> None:
    form = LEARNED[name]
    narrow = Form(form.score, form.mask, (form.captured[0].bfloat16(),))
    # Eager accumulates in bf16.
    gradients(narrow, *operands(dtype=torch.bfloat16), learned=True, rounding=0.2)
    gradients(form, *operands(), learned=True, dynamic=True)


@settings(max_examples=12, deadline=None)
@given_by(data=st.data())
def test_gradients_of_captured_tensors_of_any_shape(data: st.DataObject) -> None:
    """Heads and groups, lengths that are no multiples of blocks, masks with and without lists, larger tables."""
    shared, group = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]))
    queries, keys = (data.draw(st.integers(1, 40)) for _ in range(2))
    given = operands(shared * group, shared, of_keys=data.draw(st.integers(1, 2)), queries=queries, keys=keys)
    mask = data.draw(st.sampled_from([everything, causal, window]))
    size = data.draw(st.sampled_from([16, 128]))
    blocks = create_block_mask(mask, None, None, queries, keys, device="cpu", BLOCK_SIZE=size).as_tuple()

    def learned(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, *tables: Tensor) -> Tensor:
        distance, rows, points = tables
        return score * (1 + rows[h, m]) + distance[h, m - n + keys] + points[b, h, m, n]

    heads, more = shared * group, data.draw(st.integers(0, 2))
    tables = (
        drawn(heads, queries + keys),
        drawn(heads, queries + more),
        drawn(2, heads, queries + more, keys),
    )
    gradients(Form(learned, mask, tables), *given, blocks=blocks, learned=True)


def learned_kinds(form: Form, options: LoweringOptions) -> list[str]:
    """Kinds of operations that compute gradients of captured tensors: sums, scatters or pointwise operations."""
    given = [x.requires_grad_() for x in (*operands(), *(x.detach().clone() for x in form.captured))]
    queries, keys, values, *tables = given
    compiled, interpreted = captured(attention(form, WHOLE), options=options)
    compiled(queries, keys, values, *lists(WHOLE), *tables)[0].sum().backward()
    backward = interpreted.lowered[1].graph
    sums = [
        each
        for each in backward.operations
        if isinstance(each, Reduction) and nested_reductions(*each.bodies)
    ]
    scatters = [
        each for each in backward.operations if isinstance(each, Scatter) and nested_reductions(each.body)
    ]
    elements = [
        each
        for each in backward.operations
        if isinstance(each, Pointwise) and nested_reductions(*each.bodies)
    ]
    return ["sum"] * (len(sums) - 3) + ["scatter"] * len(scatters) + ["elements"] * len(elements)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "sum") for name in ("slopes", "scales", "queries", "keys", "temperature")),
        *((name, "scatter") for name in ("distances", "pairs", "buckets")),
        ("points", "elements"),
    ],
)
def test_gradients_independent_of_queries_or_keys_are_summed_first(name: str, kind: str) -> None:
    assert learned_kinds(LEARNED[name], OPTIONS) == [kind]


def test_deterministic_gradients_of_captured_tensors_fall_back() -> None:
    deterministic = replace(OPTIONS, deterministic=True)
    assert learned_kinds(LEARNED["distances"], deterministic) == []


def test_gradients_of_computed_captured_tensors_fall_back() -> None:
    """The score function computes on the whole tensor first, so its gradient is no sum over elements."""

    def grown(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, slope: Tensor) -> Tensor:
        return score + (n - m) * torch.exp(slope)[h]

    form = Form(grown, causal, (SLOPES,))
    assert learned_kinds(form, OPTIONS) == []
    gradients(form, *operands())
    gradients(form, *operands(), learned=True, allowed=("aten.bmm",))


def refusal_of(form: Form, *given: Tensor) -> str:
    """Reason for which an attention is not lowered to loops."""
    arguments = (*given, *lists(WHOLE), *form.captured, *form.seen)
    lowered = lower(make_fx(attention(form, WHOLE), tracing_mode="fake")(*arguments), options=OPTIONS)
    assert not any(
        isinstance(each, Reduction) and nested_reductions(*each.bodies) for each in lowered.graph.operations
    )
    (decision,) = (each for each in lowered.decisions if each.reason.startswith("flex_attention"))
    assert decision.verdict == "leave"
    return f"{decision.reason}: {decision.note}"


def test_functions_that_are_no_expression_of_a_point_are_refused() -> None:
    def spread(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor, table: Tensor) -> Tensor:
        return score + table.sum()

    assert "flex_attention.function: the function runs aten.sum" in refusal_of(
        Form(spread, causal, (TABLE,)), *operands()
    )
    assert "flex_attention.dtype" in refusal_of(FORMS["plain"], *operands(dtype=torch.float64))
