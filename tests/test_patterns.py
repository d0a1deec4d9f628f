"""Rewrites of patterns: what matches, what does not and why, what is inserted, and their identity."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import litz
from litz.passes import Passes
from litz.patterns import Match, Rewrite
from litz_ir.errors import ConfigError

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "kept"), fallback="error"):
        yield


@torch.library.custom_op("litzpatterns::tanhed", mutates_args=())
def tanhed(x: Tensor) -> Tensor:
    return torch.tanh(x)


@tanhed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("litzpatterns::scaled", mutates_args=())
def scaled(x: Tensor, w: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return torch.sin(x * w) * factor, x * w


@scaled.register_fake
def _(x: Tensor, w: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("litzpatterns::put", mutates_args=("out",))
def put(out: Tensor, x: Tensor) -> None:
    out.copy_(x * 2)


@put.register_fake
def _(out: Tensor, x: Tensor) -> None:
    return None


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-2.0, 2.0, torch.Size(shape).numel()).reshape(shape).to(dtype)


def example(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def outcomes(
    item: Rewrite, program: Callable[..., Any], *args: Any, dynamic: bool = False
) -> list[tuple[str, str]]:
    """Compare a program with eager under a rewrite; return the verdict and reason of what resembles its pattern."""
    torch._dynamo.reset()
    with litz.config.patch(passes=Passes(post_grad_after=(item,))):
        found = torch.compile(program, backend="litz", dynamic=dynamic)(*args)
        torch.testing.assert_close(found, program(*args))
        report = litz.explain(program, *args)
    return [
        (each.verdict, each.reason.key)
        for each in report.passes
        if each.verdict not in ("changed", "unchanged")
    ]


REPLACED = [("replace", "passes.matched")]


def sin_then_cos(x: Tensor) -> Tensor:
    return torch.cos(torch.sin(x))


def as_before(x: Tensor) -> Tensor:
    return torch.ops.litzpatterns.tanhed(x) * 0 + torch.cos(torch.sin(x))


SIN_COS = Rewrite("sin-cos", sin_then_cos, as_before, (example(3, 4),))


# --- what matches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_any_size_of_the_examples_dimensions_and_dtype_matches(dynamic: bool) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.cos(torch.sin(x + 1)) - 1

    for shape in ((2, 3), (5, 7)):
        assert outcomes(SIN_COS, program, numbers(*shape), dynamic=dynamic) == REPLACED
    assert outcomes(SIN_COS, program, numbers(6)) == [], "another number of dimensions"
    assert outcomes(SIN_COS, program, numbers(2, 3, dtype=torch.float64)) == [], "another dtype"


def test_further_examples_add_dtypes_and_dimensions() -> None:
    more = ((example(3, dtype=torch.bfloat16),), (example(3),))
    item = Rewrite("sin-cos", sin_then_cos, as_before, (example(3, 4),), more_example_inputs=more)
    for x in (numbers(2, 3), numbers(6, dtype=torch.bfloat16), numbers(6)):
        assert outcomes(item, lambda x: torch.cos(torch.sin(x * 1)), x) == REPLACED
    assert outcomes(item, sin_then_cos, numbers(6, dtype=torch.float16)) == []


def test_every_occurrence_is_replaced_also_one_that_feeds_another() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return sin_then_cos(sin_then_cos(x)), sin_then_cos(x - 1)

    assert outcomes(SIN_COS, program, numbers(2, 3)) == REPLACED * 3


def of_numbers(x: Tensor, factor: float, low: int) -> Tensor:
    return torch.clamp(torch.sin(x) * factor, min=low)


def with_numbers(x: Tensor, factor: float, low: int) -> Tensor:
    return torch.maximum(torch.sin(x) * factor, torch.full((), low, dtype=x.dtype, device=x.device))


def test_numbers_of_the_pattern_stand_for_those_of_the_program() -> None:
    item = Rewrite("numbers", of_numbers, with_numbers, (example(4), 0.5, 3))
    assert outcomes(item, lambda x: of_numbers(x, 7.5, -2), numbers(9)) == REPLACED
    assert outcomes(item, lambda x: of_numbers(x, 2, -1), numbers(9)) == REPLACED, "an integer for a float"
    assert outcomes(item, lambda x: of_numbers(x, 2.0, 0.5), numbers(9)) == [], "no float for an integer"  # type: ignore[arg-type]


def test_a_number_that_is_read_twice_is_one_number() -> None:
    def twice(x: Tensor, factor: float) -> Tensor:
        return torch.sin(x * factor) * factor

    item = Rewrite(
        "twice", twice, lambda x, factor: torch.sin(x * factor) * (x * 0 + factor), (example(4), 0.5)
    )
    assert outcomes(item, lambda x: twice(x, 3.0), numbers(9)) == REPLACED
    assert outcomes(item, lambda x: torch.sin(x * 3.0) * 2.0, numbers(9)) == []


def test_constants_of_the_pattern_are_those_of_the_program() -> None:
    item = Rewrite(
        "constant", lambda x: torch.sin(x) * 3.0, lambda x: torch.sin(x) * 1.5 * 2.0, (example(4),)
    )
    assert outcomes(item, lambda x: torch.sin(x) * 3.0, numbers(9)) == REPLACED
    assert outcomes(item, lambda x: torch.sin(x) * 4.0, numbers(9)) == []


def test_operands_of_operators_that_commute_may_be_swapped() -> None:
    item = Rewrite(
        "swapped",
        lambda x, y: torch.sin(x) + y * x,
        lambda x, y: torch.sin(x) + x * y * 1,
        (example(4), example(4)),
    )
    x, y = numbers(9), numbers(9) + 3
    for program in (
        lambda x, y: torch.sin(x) + y * x,
        lambda x, y: torch.sin(x) + x * y,
        lambda x, y: y * x + torch.sin(x),
    ):
        assert outcomes(item, program, x, y) == REPLACED
    assert outcomes(item, lambda x, y: torch.sin(x) + y * y, x, y) == []
    assert outcomes(item, lambda x, y: torch.sin(x) - y * x, x, y) == []


def residual(x: Tensor, w: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    y = x * w
    return torch.sin(y) * factor, y


@pytest.mark.parametrize("dynamic", [False, True])
def test_several_results(dynamic: bool) -> None:
    item = Rewrite(
        "residual", residual, torch.ops.litzpatterns.scaled.default, (example(3, 4), example(3, 4), 0.5)
    )

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        first, second = residual(x + 1, w, 2.5)
        return first - 1, second * second

    args = numbers(5, 6), numbers(5, 6) + 1
    assert outcomes(item, program, *args, dynamic=dynamic) == REPLACED
    with litz.config.patch(passes=Passes(post_grad_after=(item,))):
        assert [call.target for call in litz.explain(program, *args).calls] == ["litzpatterns.scaled.default"]


def heads(x: Tensor) -> Tensor:
    return torch.sin(x.view(x.shape[0], x.shape[1] // 4, 4)).sum(-1)


def heads_otherwise(x: Tensor) -> Tensor:
    zeros = torch.zeros(x.shape[0], x.shape[1] // 4, dtype=x.dtype, device=x.device)
    return zeros + torch.sin(x.reshape(x.shape[0], x.shape[1] // 4, 4)).sum(-1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_follow_from_others(dynamic: bool) -> None:
    item = Rewrite("heads", heads, heads_otherwise, (example(3, 8),))
    assert outcomes(item, heads, numbers(5, 12), dynamic=dynamic) == REPLACED
    others = (lambda x: torch.sin(x.view(x.shape[0] // 2, x.shape[1] // 2, 4)).sum(-1), numbers(6, 12))
    assert outcomes(item, *others, dynamic=dynamic) == []


def test_sizes_that_are_equal_in_the_pattern_are_equal_in_the_program() -> None:
    item = Rewrite(
        "row", lambda x, w: torch.sin(x) * w, lambda x, w: w * torch.sin(x) * 1, (example(3, 4), example(4))
    )
    program = lambda x, w: torch.sin(x) * w  # noqa: E731
    assert outcomes(item, program, numbers(5, 6), numbers(6)) == REPLACED
    assert outcomes(item, program, numbers(5, 6), numbers(1)) == [], "it is broadcast"


def test_operators_that_write_match_as_functional_calls() -> None:
    def pattern(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.ops.litzpatterns.put(out, torch.sin(x))
        return out

    item = Rewrite("put", pattern, lambda x: torch.sin(x) * 2, (example(4),))
    assert outcomes(item, lambda x: pattern(x + 1) - 1, numbers(9)) == REPLACED
    # The other way round, the call is inserted and writes to memory of its own.
    item = Rewrite("put", lambda x: torch.sin(x) * 2, pattern, (example(4),))
    for dynamic in (False, True):
        assert outcomes(item, lambda x: torch.sin(x + 1) * 2 - 1, numbers(9), dynamic=dynamic) == REPLACED


# --- what does not ------------------------------------------------------------------------------------------


def test_a_value_that_others_read_is_left_with_the_reason() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.sin(x)
        return torch.cos(y), y + 1

    assert outcomes(SIN_COS, program, numbers(2, 3)) == [("leave", "passes.escapes")]
    with litz.config.patch(passes=Passes(post_grad_after=(SIN_COS,))):
        report = litz.explain(program, numbers(2, 3))
    (left,) = (each for each in report.passes if each.verdict == "leave")
    assert left.note.startswith("sin-cos, for ") and "test_patterns.py:" in left.note
    assert "leave cos: another operation reads a value between" in " ".join(str(report).split())


def test_a_value_that_is_returned_is_left() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.sin(x)
        return y, torch.cos(y)

    assert outcomes(SIN_COS, program, numbers(2, 3)) == [("leave", "passes.escapes")]


def test_the_gradient_of_a_forward_that_is_rewritten() -> None:
    x = numbers(2, 3).requires_grad_()
    with litz.config.patch(passes=Passes(post_grad_after=(SIN_COS,))):
        report = litz.explain(sin_then_cos, x, backward=True)
    assert [each.verdict for each in report.graphs[0].passes] == ["changed", "replace"]
    assert [call.target for call in report.graphs[0].calls] == ["litzpatterns.tanhed.default"]
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -torch.sin(torch.sin(x.detach())) * torch.cos(x.detach()))


def written_between(x: Tensor, y: Tensor) -> Tensor:
    a = aten.sin.default(x)
    aten.add_.Tensor(y, 1)
    return aten.cos.default(a)


def input_after_a_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first = aten.sin.default(x)
    w = aten.exp.default(first)
    return aten.mul.Tensor(first, w), w


def test_writes_and_order_are_in_the_way() -> None:
    gm = make_fx(written_between, tracing_mode="fake")(numbers(2, 3), numbers(2, 3))
    code = gm.code
    assert [each.reason.key for each in SIN_COS.rewrite(gm.graph)] == ["passes.written"]
    gm.recompile()
    assert gm.code == code
    two = Rewrite(
        "two",
        lambda x, w: (torch.sin(x), torch.sin(x) * w),
        lambda x, w: (torch.sin(x), w),
        (example(3, 4),) * 2,
    )
    with pytest.raises(ConfigError, match="has 2 results, the pattern 1"):
        Rewrite("few", lambda x: torch.sin(x), lambda x: (x, x), (example(2),)).uuid()
    one = Rewrite("one", _first_and_both, _first_and_both, (example(3, 4),) * 2)
    gm = make_fx(input_after_a_result, tracing_mode="fake")(numbers(2, 3), numbers(2, 3))
    assert [each.reason.key for each in one.rewrite(gm.graph)] == ["passes.order"]
    assert two.uuid() != one.uuid()


def _first_and_both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    first = torch.sin(x)
    return first, first * w


class FusionPass:
    """A pass that runs a rewrite from inside, as passes of servers do; the name of its attribute has no meaning."""

    def __init__(self, rewrite: Rewrite) -> None:
        self.rewrite = rewrite
        self.replaced: list[int] = []

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.replaced.append(sum(each.verdict == "replace" for each in self.rewrite.rewrite(graph)))

    def uuid(self) -> tuple[str, str | None]:
        return "fusion pass 1", self.rewrite.uuid()


def test_a_pass_of_the_program_runs_a_rewrite_from_inside() -> None:
    item = FusionPass(SIN_COS)
    options = {"post_grad_custom_post_pass": item}
    compiled = torch.compile(lambda x: torch.sin(x).cos() + 1, backend="litz", options=options)
    torch.testing.assert_close(compiled(numbers(2, 4)), torch.sin(numbers(2, 4)).cos() + 1)
    assert item.replaced == [1]


def test_a_check_decides_with_the_match_in_hand() -> None:
    seen: list[tuple[Any, ...]] = []

    def check(match: Match) -> bool:
        seen.append(
            (tuple(match.value("x").shape), match.inputs["factor"], len(match.nodes), len(match.results))
        )
        return bool(match.value("factor") > 1)

    def pattern(x: Tensor, factor: float) -> Tensor:
        return torch.sin(x) * factor

    item = Rewrite(
        "checked", pattern, lambda x, factor: torch.sin(x) * (x * 0 + factor), (example(4), 0.5), check
    )
    assert outcomes(item, lambda x: pattern(x, 2.0), numbers(9)) == REPLACED
    assert outcomes(item, lambda x: pattern(x, 0.25), numbers(9)) == [("leave", "passes.check")]
    assert ((9,), 2.0, 2, 1) in seen and ((9,), 0.25, 2, 1) in seen


def test_a_replacement_of_another_type_is_an_error_that_names_the_rewrite() -> None:
    item = Rewrite("narrow", sin_then_cos, lambda x: torch.sin(x).to(torch.float16), (example(3, 4),))
    with (
        litz.config.patch(passes=Passes(post_grad_after=(item,)), fallback="warn"),
        pytest.raises(
            Exception, match=r"the pass narrow .*result 0 of the replacement is torch.float16 \(2, 3\)"
        ),
    ):
        torch.compile(sin_then_cos, backend="litz")(numbers(2, 3))


def writes(x: Tensor) -> Tensor:
    x.add_(1)
    return torch.sin(x)


CONSTANT = torch.ones(4)

WRONG: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "writes to its input 0": (writes, (example(4),)),
    "holds a tensor of its own": (lambda x: torch.sin(x) * CONSTANT, (torch.ones(4),)),
    "returns an input or nothing": (lambda x: x, (example(4),)),
    "computes .* from its numbers": (lambda x, n: torch.sin(x) * (n * 2 + 1), (example(4), 0.5)),
    "depend on its numbers": (lambda x, n: torch.sin(x) if n == 3 else torch.cos(x), (example(4), 3)),
    "cannot be traced: RuntimeError": (lambda x: torch.mm(x, x), (example(4),)),
    "is 'text'": (lambda x, y: torch.sin(x), (example(4), "text")),
    "does not read its input y": (lambda x, y: torch.sin(x), (example(4), example(4))),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_pattern_that_cannot_be_one_says_why(said: str) -> None:
    function, inputs = WRONG[said]
    replacement = (lambda x, y: x * y) if "does not read" in said else function
    with pytest.raises(ConfigError, match=f"pattern of the rewrite wrong.*{said}"):
        Rewrite("wrong", function, replacement, inputs).uuid()


# --- identity -----------------------------------------------------------------------------------------------

IDENTITY = """
import torch
from litz.patterns import Rewrite

def rewrite(factor):
    inputs = (torch.empty(3, 4, device="meta"), torch.empty(4, device="meta"), 1e-6)
    return Rewrite("r", lambda x, w, e: torch.sin(x + e) * w * factor, lambda x, w, e: x * w + e, inputs)

print(rewrite(2.0).uuid(), rewrite(3.0).uuid())
"""


def test_the_identifier_follows_from_what_is_traced() -> None:
    command = [sys.executable, "-c", IDENTITY]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    two, three = runs[0].split()
    assert two != three and len(two) == 64


def test_a_check_is_part_of_the_identifier() -> None:
    def rewrite(check: Callable[[Match], bool] | None) -> Rewrite:
        return Rewrite("sin-cos", sin_then_cos, as_before, (example(3, 4),), check)

    hidden = object()
    found = [rewrite(each).uuid() for each in (None, lambda match: True, lambda match: False)]
    assert len(set(found)) == 3 and None not in found
    assert rewrite(lambda match: hidden is None).uuid() is None
    assert SIN_COS.uuid() == rewrite(None).uuid()


def test_rewrites_are_told_apart_without_comparing_their_tensors() -> None:
    first, second = (Rewrite("same", torch.sin, torch.cos, [torch.empty(4)]) for _ in range(2))
    passes = [Passes(post_grad_after=(each,)) for each in (first, second)]
    assert passes[0] == passes[0] != passes[1] and len(set(passes)) == 2
    assert first.uuid() == second.uuid()
