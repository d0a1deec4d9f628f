"""Operators from ``torch.library`` against eager: values, side effects, strides of their arguments, and the number of
copies for those that overwrite arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import auto_functionalize
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch._library.opaque_object import OpaqueBase, get_opaque_type_name, register_opaque_type
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.torchbind_impls import init_torchbind_implementations
from torch.utils._pytree import tree_leaves, tree_map

import litz
from litz.capture import aot
from litz.compilation import Compilation
from litz.loading import Compiled
from litz_ir.plan import Launch

pytestmark = pytest.mark.sampled  # it compiles whole programs

SEEN: list[tuple[tuple[int, ...], ...]] = []
"""Strides of the arguments at each call of an operator."""


NOTES: list[tuple[str, int]] = []
"""Notes of the operators with effects, in order."""


class Counter(OpaqueBase):
    """An object argument, which only operators read."""

    def __init__(self, count: int) -> None:
        self.count = count


register_opaque_type(Counter, typ="reference")


def record(*tensors: Any) -> None:
    SEEN.append(tuple(t.stride() for t in tree_leaves(tensors) if isinstance(t, Tensor)))


def define(
    library: torch.library.Library,
    schema: str,
    body: Callable[..., Any],
    fake: Callable[..., Any] | None = None,
    *tags: str,
) -> None:
    """Define an operator whose body notes the strides of its arguments, with those of the tags that this torch has."""
    name = schema.partition("(")[0]
    library.define(schema, tags=[getattr(torch.Tag, tag) for tag in tags if hasattr(torch.Tag, tag)])

    def run(*args: Any, **kwargs: Any) -> Any:
        record(args, kwargs)
        return body(*args, **kwargs)

    library.impl(name, run, "CompositeExplicitAutograd")
    if fake is not None:
        torch.library.register_fake(f"litztest::{name}", fake, lib=library)


def _increment(x: Tensor) -> None:
    x.add_(1)


def _pair(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.add_(z)
    y.mul_(2)
    return z + 1


def _perhaps(x: Tensor, y: Tensor | None = None) -> Tensor:
    if y is not None:
        y.add_(x)
    return x * 2


def _all(xs: Sequence[Tensor], by: int, *, twice: bool = False) -> None:
    for x in xs:
        x.add_(by * (2 if twice else 1))


def _arguments(
    x: Tensor, s: str, d: torch.dtype, dev: torch.device, layout: torch.layout, fmt: torch.memory_format, f: float,
    b: bool, ints: Sequence[int], syms: Sequence[int], floats: Sequence[float], turn: complex, scalar: float, sym: int,
    so: str | None = None, do: torch.dtype | None = None, io: int | None = None, to: Tensor | None = None,
    bs: Sequence[bool] | None = None, ts: Sequence[Tensor | None] | None = None,
) -> Tensor:  # fmt: skip
    assert (s, dev.type, layout, fmt) == ("a'b", "cpu", torch.strided, torch.channels_last)
    assert (
        b is True
        and so is None
        and do is None
        and io is None
        and to is None
        and list(bs or ()) == [True, False]
    )
    total = f + sum(ints) + sum(syms) + sum(floats) + turn.imag + scalar + sym
    return (x * total + sum(t.sum() for t in ts or () if t is not None)).to(d)


def _transposed(x: Tensor) -> Tensor:
    return (x + 1).t().contiguous().t()


def _logged(x: Tensor, note: str) -> Tensor:
    NOTES.append((note, round(x.sum().item())))
    return x * 2


def _open(x: Tensor) -> Tensor:
    return x.cos() + 1


def _count(counter: Counter, x: Tensor) -> Tensor:
    counter.count += 1
    return x + counter.count


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = torch.library.Library("litztest", "FRAGMENT")
    define(library, "increment(Tensor(a!) x) -> ()", _increment)
    define(
        library,
        "pair(Tensor(a!) x, Tensor(b!) y, Tensor z) -> Tensor",
        _pair,
        lambda x, y, z: torch.empty_like(z),
    )
    define(
        library,
        "perhaps(Tensor x, Tensor(a!)? y=None) -> Tensor",
        _perhaps,
        lambda x, y=None: torch.empty_like(x),
    )
    define(library, "all(Tensor(a!)[] xs, int by, *, bool twice=False) -> ()", _all)
    define(
        library,
        "arguments(Tensor x, str s, ScalarType d, Device dev, Layout layout, MemoryFormat fmt, float f, bool b, "
        "int[] ints, SymInt[] syms, float[] floats, complex turn, Scalar scalar, SymInt sym, str? so=None, "
        "ScalarType? do=None, "
        "int? io=None, Tensor? to=None, bool[]? bs=None, Tensor?[]? ts=None) -> Tensor",
        _arguments,
        lambda x, s, d, *rest, **more: torch.empty_like(x, dtype=d),
    )  # fmt: skip
    define(
        library, "several(Tensor x) -> Tensor[]", lambda x: [x + 1, x[0] * 2], lambda x: [x + 0, x[0] + 0]
    )  # fmt: skip
    define(
        library, "mixed(Tensor x) -> (Tensor, Tensor?, int, float)", lambda x: (x + 1, None, 3, 2.5),
        lambda x: (torch.empty_like(x), None, 3, 2.5),
    )  # fmt: skip
    define(library, "scaled(Tensor x) -> Tensor", lambda x: x * 3, torch.empty_like)
    define(
        library, "scaled_anyhow(Tensor x) -> Tensor", lambda x: x * 3, torch.empty_like,
        "flexible_layout",
    )  # fmt: skip
    define(
        library, "scaled_exactly(Tensor x) -> Tensor", lambda x: x * 3, torch.empty_like,
        "needs_exact_strides",
    )  # fmt: skip
    define(
        library, "scaled_in_order(Tensor x) -> Tensor", lambda x: x * 3, torch.empty_like,
        "needs_fixed_stride_order",
    )  # fmt: skip
    define(
        library, "noise(Tensor x, *, Generator? generator=None) -> Tensor",
        lambda x, generator=None: torch.rand(x.shape, generator=generator), lambda x, generator=None: x + 0,
        "nondeterministic_seeded",
    )  # fmt: skip
    define(
        library, "into(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda x, out: out.copy_(x * 2),
        lambda x, out: out, "out",
    )  # fmt: skip
    define(
        library, "bump_(Tensor(a!) x, int by) -> Tensor(a!)", lambda x, by: x.add_(by), lambda x, by: x,
        "inplace",
    )  # fmt: skip
    library.define("log(Tensor x, str note) -> ()")
    library.impl(
        "log", lambda x, note: NOTES.append((note, round(x.sum().item()))), "CompositeExplicitAutograd"
    )
    torch.library.register_fake("litztest::log", lambda x, note: None, lib=library)
    library.define("logged(Tensor x, str note) -> Tensor")
    library.impl("logged", _logged, "CompositeExplicitAutograd")
    torch.library.register_fake("litztest::logged", lambda x, note: torch.empty_like(x), lib=library)
    for name in ("log", "logged"):
        _register_effectful_op(getattr(torch.ops.litztest, name).default, _EffectType.ORDERED)
    define(
        library, "positive(Tensor x) -> Tensor", lambda x: x[x > 0],
        lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()),
    )  # fmt: skip
    library.define(f"count({get_opaque_type_name(Counter)} counter, Tensor x) -> Tensor")
    library.impl("count", _count, "CompositeExplicitAutograd")
    torch.library.register_fake("litztest::count", lambda counter, x: torch.empty_like(x), lib=library)
    _register_effectful_op(torch.ops.litztest.count.default, _EffectType.ORDERED)
    define(library, "square(Tensor x) -> Tensor", lambda x: x * x, torch.empty_like)
    torch.library.register_autograd(
        "litztest::square",
        lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        lib=library,
    )
    torch.library.register_vmap(
        "litztest::square", lambda info, dims, x: (torch.ops.litztest.square(x), dims[0]), lib=library
    )
    define(library, "misdescribed(Tensor x) -> Tensor", _transposed, lambda x: x.new_empty(x.shape))
    define(library, "misshapen(Tensor x) -> Tensor", lambda x: x[1:] + 1, torch.empty_like)
    define(library, "widened(Tensor x) -> Tensor", lambda x: x.double(), torch.empty_like)
    define(library, "moved(Tensor x) -> Tensor", lambda x: x.to("meta"), torch.empty_like)
    define(library, "scattered(Tensor x) -> Tensor", lambda x: x.to_sparse(), torch.empty_like)
    torch.library.triton_op("litztest::open", _open, mutates_args=())
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    SEEN.clear()


def numbers(*shape: int) -> Tensor:
    """Return 0, 1, 2, … in a shape."""
    size = torch.Size(shape)
    return torch.arange(float(size.numel())).reshape(size)


def check(program: Callable[..., Any], *args: Tensor, dynamic: bool | None = None) -> list[Compiled]:
    """Assert equal values and strides of results, arguments after the call, and strides that operators get; return the
    compiled graphs. A fallback of a whole graph is an error."""
    compiled: list[Compiled] = []
    with litz.config.patch(fallback="error"):
        run = torch.compile(
            program, fullgraph=True, dynamic=dynamic,
            backend=lambda gm, inputs: litz.compile_fx(gm, inputs, observers=[compiled.append]),
        )  # fmt: skip
        for _ in range(2):
            copy = torch._prims_common.clone_preserve_strides
            ours, theirs = tree_map(copy, args), tree_map(copy, args)
            SEEN.clear()
            want = program(*theirs)
            eager_strides = list(SEEN)
            run(*tree_map(copy, args))
            SEEN.clear()
            found = run(*ours)
            assert eager_strides == SEEN
            for got, wanted in zip(tree_leaves((found, ours)), tree_leaves((want, theirs)), strict=True):
                torch.testing.assert_close(got, wanted)
                if isinstance(wanted, Tensor):
                    assert got.stride() == wanted.stride()
    return compiled


def kernels(compiled: Sequence[Compiled]) -> int:
    """Return the number of kernels; for these programs litz generates nothing but loops and copies."""
    return sum(
        isinstance(step, Launch)
        for each in compiled
        if each.artifact is not None
        for step in each.artifact.plan.steps
    )


# --- overwriting ----------------------------------------------------------------------------------------------


def on_intermediate(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y)
    return y


def on_input(x: Tensor) -> None:
    torch.ops.litztest.increment(x)


def on_row(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y[1])
    return y


def on_column_of_input(x: Tensor) -> None:
    torch.ops.litztest.increment(x[:, 1])


def on_transposed(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y.t())
    return y


def on_slice(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y[1:])
    return y


def twice(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y)
    torch.ops.litztest.increment(y)
    return y


def input_twice(x: Tensor) -> None:
    torch.ops.litztest.increment(x)
    torch.ops.litztest.increment(x[0])


def two_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, torch.ops.litztest.pair(y[0], y[1], x[0])


def in_a_list(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.all([y[0], y[2]], 3, twice=True)
    return y


def optional(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return torch.ops.litztest.perhaps(x, y), y


def through_detach(x: Tensor) -> Tensor:
    y = x * 2
    torch.ops.litztest.increment(y.detach())
    return y


IN_PLACE: dict[str, tuple[Callable[..., Any], int]] = {
    "intermediate": (on_intermediate, 1),
    "input": (on_input, 0),
    "row": (on_row, 1),
    "column of an input": (on_column_of_input, 0),
    "transposed": (on_transposed, 1),
    "slice": (on_slice, 1),
    "twice": (twice, 1),
    "input twice": (input_twice, 0),
    "two rows": (two_rows, 1),
    "list": (in_a_list, 1),
    "optional": (optional, 1),
    "detached": (through_detach, 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_overwriting_without_a_copy(name: str) -> None:
    program, loops = IN_PLACE[name]
    assert kernels(check(program, numbers(3, 4))) == loops


@pytest.mark.parametrize("name", ["column of an input", "row", "list", "slice"])
def test_overwriting_parts_of_any_size(name: str) -> None:
    program, loops = IN_PLACE[name]
    assert kernels(check(program, numbers(3, 4), dynamic=True)) == loops


def test_overwriting_a_permuted_input_and_one_with_gaps() -> None:
    assert kernels(check(on_input, numbers(4, 3).t())) == 0
    torch._dynamo.reset()
    assert kernels(check(on_column_of_input, numbers(6, 8)[1:, ::2])) == 0


def old_value_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.clone()
    torch.ops.litztest.increment(z)
    return y, z


def old_view_read_later(x: Tensor) -> Tensor:
    y = x * 2
    z = y + 0.5
    torch.ops.litztest.increment(z)
    return y.t() @ z


def clone_of_an_input(x: Tensor) -> Tensor:
    z = x.clone()
    torch.ops.litztest.increment(z)
    return z + x


@pytest.mark.parametrize("program", [old_value_returned, old_view_read_later, clone_of_an_input])
def test_a_clone_that_is_overwritten_keeps_its_source(program: Callable[..., Any]) -> None:
    check(program, numbers(3, 4))


def test_a_value_that_is_saved_for_the_backward_is_copied_once() -> None:
    class Increment(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: Tensor) -> Tensor:
            ctx.save_for_backward(y)
            z = y.detach().clone()
            torch.ops.litztest.increment(z)
            return z

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * ctx.saved_tensors[0]

    def program(x: Tensor) -> Tensor:
        return Increment.apply(torch.sin(x)).square().sum()

    with litz.config.patch(fallback="error"):
        ours, theirs = (numbers(3, 4).requires_grad_() for _ in range(2))
        torch.compile(program, backend="litz", fullgraph=True)(ours).backward()
        program(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_an_input_is_overwritten_for_good_though_something_reads_it_in_between() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x * 2
        torch.ops.litztest.increment(x)
        middle = x + before
        torch.ops.litztest.increment(x)
        return middle, x.sum()

    check(program, numbers(3, 4))


def test_an_argument_may_also_be_what_is_overwritten() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return torch.ops.litztest.pair(y[0], y[2], y[1]), y

    check(program, numbers(3, 4))


def into_new_memory(x: Tensor) -> Tensor:
    y = torch.empty(3, 4)
    return torch.ops.litztest.into(x, out=y) + y


def in_place_and_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = torch.ops.litztest.bump_(y, 3)
    return z + y, torch.ops.litztest.bump_(y[1], 4) * 2


@pytest.mark.skipif(not hasattr(torch.Tag, "inplace"), reason="torch 2.12 has the tags of such operators")
@pytest.mark.parametrize("program", [into_new_memory, in_place_and_returned])
def test_operators_that_return_what_they_overwrite(program: Callable[..., Any]) -> None:
    check(program, numbers(3, 4))


# --- arguments and results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_arguments_of_every_type(dynamic: bool) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.litztest.arguments(
            x + 1, "a'b", torch.float64, torch.device("cpu"), torch.strided, torch.channels_last, 0.5, True,
            [1, 2], [x.size(0), 4], [0.5, 1.5], 2 + 3j, 7, x.size(1) * 2, bs=[True, False], ts=[x, None, x * 2],
        )  # fmt: skip

    check(program, numbers(3, 4), dynamic=dynamic)


def test_results_of_every_kind() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        whole, row = torch.ops.litztest.several(x)
        plain, nothing, count, factor = torch.ops.litztest.mixed(x)
        assert nothing is None
        return whole + row, plain * count * factor, torch.ops.litztest.perhaps(x)

    check(program, numbers(3, 4))
    torch._dynamo.reset()
    check(program, numbers(3, 4), dynamic=True)


@pytest.mark.parametrize("operator", ["scaled", "scaled_exactly", "scaled_in_order"])
def test_operators_see_eagers_strides(operator: str) -> None:
    run = getattr(torch.ops.litztest, operator).default

    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        parts = (y, y.t(), y[:, ::2], y[1], x.t() * 2, y.expand(2, 3, 4), y.permute(1, 0).sin(), y.flip(0))
        return tuple(run(part) for part in parts)

    check(program, numbers(3, 4))
    torch._dynamo.reset()
    check(program, numbers(4, 3).t())


def test_an_operator_may_take_any_layout() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.litztest.scaled_anyhow(x.t() + 1)

    (compiled,) = check(program, numbers(3, 4))
    assert compiled.artifact is not None
    assert [left.target for left in compiled.artifact.fallbacks] == ["litztest.scaled_anyhow.default"]


def test_random_operators_are_never_merged_and_follow_the_generator() -> None:
    def program(x: Tensor) -> Tensor:
        noise = torch.ops.litztest.noise(x)
        return noise + torch.rand_like(x) * 10 + torch.ops.litztest.noise(x) * 100

    with litz.config.patch(fallback="error"):
        run = torch.compile(program, backend="litz", fullgraph=True)
        torch.manual_seed(3)
        found = run(numbers(3, 4))
    assert len(SEEN) == 2
    torch.manual_seed(3)
    torch.testing.assert_close(found, program(numbers(3, 4)))


def test_a_result_that_is_not_as_its_meta_kernel_said() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.litztest.misdescribed(x) * 2

    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(numbers(3, 4))
    torch.testing.assert_close(found, program(numbers(3, 4)))
    assert found.stride() == (4, 1), "the strides are those that the program was compiled for"


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("misshapen", r"shape \(2, 4\)"),
        ("widened", "torch.float64"),
        ("moved", "on meta"),
        ("scattered", "torch.sparse_coo"),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_result_that_its_meta_kernel_did_not_describe(operator: str, text: str, dynamic: bool) -> None:
    described = getattr(torch.ops.litztest, operator)
    for program in (lambda x: described(x), lambda x: described(x) + 1):
        torch._dynamo.reset()
        with pytest.raises(RuntimeError, match=rf"litztest\.{operator}.*{text}.*register_fake"):
            torch.compile(program, backend="litz", dynamic=dynamic)(numbers(3, 4))


# --- the wrapper that came before --------------------------------------------------------------------------------


def first_wrapper(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Wrap an operator as torch did before it could wrap views; arguments that are left out have their defaults."""
    wrapped = torch.ops.higher_order.auto_functionalized
    a, b = x * 2, y + 1
    result, new = wrapped(torch.ops.litztest.perhaps.default, x=y, y=a)
    (none, (first, second)) = wrapped(torch.ops.litztest.all.default, xs=[b, x], by=3)
    doubled, absent = wrapped(torch.ops.litztest.perhaps.default, x=new, y=None)
    assert none is None and absent is None
    return result + new, first, second, a, doubled


def test_a_result_that_an_operator_leaves_undefined_is_none() -> None:
    def attention(q: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        attended, weights = torch._native_multi_head_attention(
            q, q, q, 6, 2, weight, bias, weight[:6], bias[:6], None, False
        )
        return attended + 1, weights

    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 6), torch.randn(18, 6), torch.randn(18))
    with torch.no_grad(), litz.config.patch(fallback="error"):
        expected = attention(*inputs)
        attended, weights = torch.compile(attention, backend="litz", fullgraph=True)(*inputs)
    torch.testing.assert_close(attended, expected[0])
    assert weights is expected[1] is None


def test_the_first_wrapper_gives_new_versions_and_leaves_the_old_ones() -> None:
    x, y = numbers(3, 4), numbers(3, 4) + 1
    with FakeTensorMode():
        graph = make_fx(first_wrapper)(torch.empty(3, 4), torch.empty(3, 4))
    with litz.config.patch(fallback="error"):
        run = litz.compile_fx(graph, [x, y])
    torch.testing.assert_close(tuple(run(x, y)), first_wrapper(x, y))
    torch.testing.assert_close((x, y), (numbers(3, 4), numbers(3, 4) + 1))


@pytest.mark.parametrize("program", [on_intermediate, on_row, optional, in_a_list, two_rows, input_twice])
def test_programs_under_the_first_wrapper(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        auto_functionalize, "do_auto_functionalize_v2", auto_functionalize.do_auto_functionalize
    )
    check(program, numbers(3, 4))


# --- effects, gradients, transforms, data ---------------------------------------------------------------------


def test_effects_happen_in_order_each_time_it_is_written() -> None:
    def program(x: Tensor) -> Tensor:
        torch.ops.litztest.log(x, "first")
        y = torch.ops.litztest.logged(x * 2, "second")
        torch.ops.litztest.logged(y, "nobody reads it")
        torch.ops.litztest.log(x * 3, "fourth")
        return y + torch.ops.litztest.logged(x * 2, "second")

    wanted = program(numbers(3, 4))
    eagers = list(NOTES)
    NOTES.clear()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(numbers(3, 4))
    torch.testing.assert_close(found, wanted)
    assert eagers == NOTES and len(NOTES) == 5
    NOTES.clear()


def _effect_with_shared_memory(left: Tensor, x: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """An effect in a graph that has as many inputs as the captured one: a synthetic base, ``x`` and a token."""
    left.cumsum_(0)
    return torch.ops.litztest.logged(x, "here"), right * 2


def _run_on_shared_memory(run: Callable[..., Any]) -> tuple[Any, Tensor, list[tuple[str, int]]]:
    """Return a function's results, the memory that its arguments share after the call, and its notes. That memory
    begins with ``left``: the synthetic base, which is all of it, may be mistaken for ``left`` without damage."""
    memory = numbers(13)
    NOTES.clear()
    with torch.no_grad():
        results = run(memory[:8], torch.tensor(20.0), memory[5:])
    noted = list(NOTES)
    NOTES.clear()
    return results, memory, noted


@pytest.mark.parametrize("falls_back", [False, True])
def test_effects_and_inputs_of_one_memory(falls_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(compilation: Compilation) -> Compiled:
        raise NotImplementedError("by the test")

    if falls_back:
        monkeypatch.setattr(Compilation, "run", fail)
    with litz.config.patch(fallback="warn" if falls_back else "error", cache=False):
        compiled = torch.compile(_effect_with_shared_memory, backend="litz", fullgraph=True)
        for _ in range(2):
            found, wanted = _run_on_shared_memory(compiled), _run_on_shared_memory(_effect_with_shared_memory)
            torch.testing.assert_close(found[:2], wanted[:2])
            assert found[2] == wanted[2] == [("here", 20)]


def test_other_inputs_than_the_captured_ones_are_no_plain_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aot, "make_undeclared_tokens", lambda gm: None)
    with litz.config.patch(fallback="error", cache=False):
        compiled = torch.compile(_effect_with_shared_memory, backend="litz", fullgraph=True)
        with pytest.raises(ValueError, match=r"expected 3, got 2"):
            _run_on_shared_memory(compiled)


def test_script_objects_are_passed_on_and_keep_what_they_are_told() -> None:
    init_torchbind_implementations()
    testing = torch.ops._TorchScriptTesting

    def program(queue: torch.ScriptObject, x: Tensor) -> Tensor:
        testing.queue_push(queue, x.sin())
        testing.queue_push(queue, x * 2)
        return testing.queue_pop(queue) + 1

    ours, theirs = (torch.classes._TorchScriptTesting._TensorQueue(torch.empty(0)) for _ in range(2))
    with litz.config.patch(fallback="error"):
        run = torch.compile(program, backend="litz", fullgraph=True)
        for k in range(1, 3):
            torch.testing.assert_close(run(ours, numbers(3) * k), program(theirs, numbers(3) * k))
    assert ours.size() == theirs.size() == 2
    torch.testing.assert_close(ours.pop(), theirs.pop())


def test_an_operator_that_torch_may_look_into_is_compiled_with_the_rest() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.litztest.open(x * 2) + 1

    assert kernels(check(program, numbers(3, 4))) == 1


def test_objects_are_passed_on() -> None:
    def program(counter: Counter, x: Tensor) -> Tensor:
        return torch.ops.litztest.count(counter, x) * 2 + torch.ops.litztest.count(counter, x)

    ours, theirs = Counter(3), Counter(3)
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(ours, numbers(3))
    torch.testing.assert_close(found, program(theirs, numbers(3)))
    assert ours.count == theirs.count == 5


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_an_operator_are_the_ones_registered(dynamic: bool) -> None:
    def program(x: Tensor) -> Tensor:
        return (torch.ops.litztest.square(x.sin()) + torch.ops.litztest.square(x)).sum()

    ours, theirs = (numbers(3, 4).requires_grad_() for _ in range(2))
    with litz.config.patch(fallback="error"):
        torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(ours).backward()
    program(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_an_operator_under_vmap() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: torch.ops.litztest.square(row) * row.sum())(x)

    check(program, numbers(3, 4))


def test_a_result_of_data_dependent_size() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.litztest.positive(x - 3) * 2 + 1

    with litz.config.patch(fallback="error"):
        run = torch.compile(program, backend="litz", fullgraph=True)
        for x in (numbers(3, 4), -numbers(3, 4), numbers(3, 4) * 0.4):
            torch.testing.assert_close(run(x), program(x))
