"""Dtypes, numbers and sizes that eager's kernels refuse and meta kernels accept raise eager's class of error."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opinfo.entries import DTYPES, ENTRIES
from opinfo.samples import seed
from test_opinfo_sample import SAMPLE
from torch import Tensor, tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import litz
from litz_lowering.aten.eager_checks import eager_error
from litz_lowering.tables import RULES, decompositions

Form = tuple[Callable[..., Any], tuple[Any, ...]]

ones = torch.ones
BOOLS, INTEGERS, ROW = tensor([True, False]), tensor([1, 2]), torch.linspace(0, 1, 2)
MATRIX, LARGE = ones(3, 4), ones(300, 400)
IMAGE, NO_IMAGE = ones(1, 2, 80, 80), ones(1, 2, 0, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with litz.config.patch(fallback="silent"):
        yield
    torch._dynamo.reset()


DTYPE_FORMS: dict[str, Form] = {
    "subtraction": (lambda a, b, x: x * (a - b), (BOOLS, BOOLS, ROW)),
    "ldexp": (torch.ldexp, (ROW, BOOLS)),
    "abs": (torch.abs, (ones(3000, 400, dtype=torch.bool),)),
    "floor": (torch.floor, (BOOLS,)),
    "trunc": (torch.trunc, (BOOLS,)),
    "relu": (F.relu, (BOOLS,)),
    "glu": (F.glu, (ones(4, 4, dtype=torch.int64),)),
    "logsigmoid": (F.logsigmoid, (INTEGERS,)),
    "celu": (F.celu, (INTEGERS,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), (INTEGERS,)),
    "logaddexp2": (torch.logaddexp2, (INTEGERS, INTEGERS)),
    "arange": (lambda x: torch.arange(-1, 2, 2, dtype=torch.bool) | x, (BOOLS,)),
    "complex": (torch.complex, (ROW, ROW.double())),
    "cross_entropy": (F.cross_entropy, (ones(40, 500), ones(40, dtype=torch.int32))),
    "one_hot": (lambda i: F.one_hot(i, 4), (INTEGERS.int(),)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (768,), w), (ones(20, 768), ones(768, dtype=torch.float64))),
    "group_norm": (lambda x, w: F.group_norm(x, 1, w), (IMAGE, ones(2, dtype=torch.float64))),
    "heaviside": (torch.heaviside, (ROW, ROW.double())),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (MATRIX, INTEGERS, ones(2, 4, dtype=torch.float64))),
    "index_put": (lambda x, i, s: x.index_put((i,), s), (LARGE, INTEGERS, ones(2, 400, dtype=torch.float64))),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool2d(x, 2), (IMAGE.long(),)),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGE.long(),)),
    "max_pool": (lambda x: F.max_pool2d(x, 2), (IMAGE.bool(),)),
    "resized": (lambda x: F.interpolate(x, size=(3, 3)), (IMAGE.long(),)),
    "multi_margin": (F.multi_margin_loss, (ones(4, 5, dtype=torch.bfloat16), tensor([0, 1, 2, 3]))),
}


NUMBER_FORMS: dict[str, Form] = {
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y, beta=-1.0), (LARGE, LARGE)),
    "huber": (lambda x, y: F.huber_loss(x, y, delta=-1.0), (LARGE, LARGE)),
    "softshrink": (lambda x: F.softshrink(x, -1.0), (LARGE,)),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 305), (LARGE, LARGE[0])),
    "select_scatter_size": (lambda x, y: torch.select_scatter(x, y, 0, 5), (LARGE, ones(1))),
    "slice_scatter_size": (lambda x, y: torch.slice_scatter(x, y, 0, 5, 7), (LARGE, LARGE[:1])),
    "diagonal_scatter_size": (torch.diagonal_scatter, (LARGE, ones(1))),
    "scatter": (lambda x, i, s: x.scatter(0, i, s), (ones(()), tensor([0]), ones(3, 2))),
}


EMPTY_FORMS: dict[str, Form] = {
    mode: (lambda x, mode=mode: F.interpolate(x, size=(3, 3), mode=mode), (NO_IMAGE,))
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
} | {
    "linear": (lambda x: F.interpolate(x, size=3, mode="linear"), (ones(1, 2, 0),)),
    "trilinear": (lambda x: F.interpolate(x, size=(3, 3, 3), mode="trilinear"), (ones(1, 2, 0, 4, 4),)),
    "antialiased": (lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True), (NO_IMAGE,)),
    "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, 2), (NO_IMAGE,)),
    "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, 2), (NO_IMAGE,)),
    "max_pool": (lambda x: F.max_pool2d(x, 2, padding=1), (NO_IMAGE,)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), (NO_IMAGE,)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (NO_IMAGE, ones(1, 3, 3, 2))),
}  # fmt: skip

FORMS = DTYPE_FORMS | {f"number_{k}": v for k, v in NUMBER_FORMS.items()} | {
    f"empty_{k}": v for k, v in EMPTY_FORMS.items()
}  # fmt: skip


def error(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        function(*(each.clone() for each in arguments))
    except Exception as raised:
        return raised
    return None


@pytest.mark.sampled
@pytest.mark.parametrize("name", FORMS)
def test_eagers_class_of_error(name: str) -> None:
    function, arguments = FORMS[name]
    expected = error(function, arguments)
    assert expected is not None, "eager accepts it"
    raised = error(torch.compile(function, backend="litz"), arguments)
    assert isinstance(raised, type(expected)), f"{raised!r} instead of {expected!r}"


def test_eagers_message_whatever_the_fallback() -> None:
    for fallback in ("error", "warn"):
        torch._dynamo.reset()
        with (
            litz.config.patch(fallback=fallback),
            pytest.raises(NotImplementedError, match='"abs_cpu" not impl'),
        ):
            torch.compile(torch.abs, backend="litz")(BOOLS)
    with litz.config.patch(fallback="error"), pytest.raises(NotImplementedError, match='"abs_cpu" not impl'):
        litz.compile_fx(torch.fx.symbolic_trace(lambda x: torch.abs(x)), [BOOLS])


def test_symbolic_sizes() -> None:
    compiled = torch.compile(torch.logaddexp2, backend="litz", dynamic=True)
    with pytest.raises(NotImplementedError):
        compiled(ones(30, 40, dtype=torch.int64), ones(30, 1, dtype=torch.int64))
    torch.testing.assert_close(compiled(MATRIX, MATRIX), torch.logaddexp2(MATRIX, MATRIX))


def test_symbolic_numbers_and_known_sizes(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor, n: int) -> Tensor:
        y = x * 2
        y[:n].sub_(3)
        return y

    run = torch.compile(program, backend="litz")
    with litz.config.patch(cache=False, fallback="warn"):
        for n in (2, 5):  # the second one is a symbol, the sizes are not
            assert torch.equal(run(MATRIX.t() + 1, n), program(MATRIX.t() + 1, n))
    assert "eager refuses" not in caplog.text


def test_views_that_are_written_in_dynamic_sizes() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return x.diagonal_scatter(y) + x.slice_scatter(y[None], 0, 2, 3) + x.select_scatter(y * 2, 0, -1)

    with litz.config.patch(fallback="error"):
        run = torch.compile(program, backend="litz", dynamic=True)
        for rows, columns in ((9, 5), (6, 4)):
            given = torch.rand(rows, columns), torch.rand(columns)
            torch.testing.assert_close(run(*given), program(*given))
        with pytest.raises(RuntimeError):
            torch.compile(torch.diagonal_scatter, backend="litz", dynamic=True)(ones(9, 5), ones(4))


def test_gradients_are_checked_too() -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), w).sum()

    x, w = MATRIX.clone().requires_grad_(), ones(4, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError):
        loss(x, w)
    with pytest.raises(RuntimeError):
        torch.compile(loss, backend="litz")(x, w)


def test_gradients_of_norms_under_autocast(caplog: pytest.LogCaptureFixture) -> None:
    """Their statistics are saved in f32, in torch's meta kernels in the dtype of the input."""
    nn = torch.nn
    norms = nn.LayerNorm([4, 3, 3]), nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *norms)

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: Tensor = model(x)
        return result

    with litz.config.patch(cache=False, fallback="warn"):
        torch.compile(step, backend="litz")(ones(2, 2, 3, 3)).float().sum().backward()
    assert all(each.grad is not None for each in model.parameters())
    assert "eager refuses" not in caplog.text


def test_targets_of_cross_entropies() -> None:
    compiled = torch.compile(F.binary_cross_entropy, backend="litz")
    p, wrong = torch.linspace(0, 1, 40), torch.linspace(0, 1.1, 40)
    torch.testing.assert_close(compiled(p, p), F.binary_cross_entropy(p, p))
    for target in (wrong, -wrong, p / 0):
        with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
            F.binary_cross_entropy(p, target)
        with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
            compiled(p, target)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        compiled(wrong, p)


class Refused(TorchDispatchMode):
    """Mode that collects the operators that eager accepts and whose check refuses them."""

    checked = frozenset(map(str, decompositions())) | {*RULES.served, *RULES.served_complex}

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.asked = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        refusal = eager_error(func, args, kwargs or {}) if str(func) in self.checked else None
        result = func(*args, **(kwargs or {}))
        self.asked += 1
        if refusal is not None:
            self.wrong.append(f"{func}: {refusal}")
        return result


@pytest.mark.parametrize("dtype", ["f32", "i64", "bool", "bf16", "c64"])
def test_nothing_is_refused_that_eager_accepts(dtype: str) -> None:
    mode = Refused()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in (ENTRIES[name] for name in SAMPLE):
            if DTYPES[dtype] in entry.supported_dtypes("cpu"):
                seed()
                for sample in itertools.islice(entry.sample_inputs("cpu", DTYPES[dtype]), 2):
                    with contextlib.suppress(AssertionError), mode:  # of entries for GPUs alone
                        entry.op(sample.input, *sample.args, **sample.kwargs)
    assert mode.wrong == [] and mode.asked > 50


def test_a_check_is_of_the_settings_of_the_process() -> None:
    put, arguments = torch.ops.aten.put.default, (MATRIX, INTEGERS, ones(2))
    assert eager_error(put, arguments, {}) is None
    torch.use_deterministic_algorithms(True)
    try:
        assert isinstance(eager_error(put, arguments, {}), RuntimeError)
    finally:
        torch.use_deterministic_algorithms(False)


def test_scales_that_leave_nothing_of_short_axes() -> None:
    scales = [0.4, 0.4]
    assert eager_error(torch.ops.aten.upsample_bicubic2d.vec, (IMAGE, None, False, scales), {}) is None


def test_no_check_makes_large_tensors() -> None:
    aten, row, huge, wide = torch.ops.aten, ones(1, 1, 2, 2), 10**15, 10**8
    calls: list[tuple[torch._ops.OpOverload, tuple[Any, ...]]] = [
        (aten.arange.default, (huge,)),
        (aten.arange.start, (-huge, 1)),
        (aten.arange.start_step, (0.0, 1.0, 1e-15)),
        (aten.linspace.default, (0, 1, huge)),
        (aten.hann_window.default, (huge,)),
        (aten.eye.default, (wide,)),
        (aten.tril_indices.default, (wide, wide)),
        (aten.full.default, ([huge, 1], 2.0)),
        (aten.constant_pad_nd.default, (row, [huge, 0])),
        (aten.constant_pad_nd.default, (ones(5000), [-3, huge])),
        (aten.one_hot.default, (INTEGERS, huge)),
        (aten.upsample_nearest2d.vec, (row, None, [1e8, 1e8])),
        (aten.upsample_nearest2d.default, (row, [wide, wide])),
    ]
    for op, args in calls:
        error = eager_error(op, args, {})
        assert error is None or "narrow" in str(error), f"{op}: {error}"  # else "not enough memory"
    assert isinstance(
        eager_error(aten.upsample_nearest2d.vec, (row.long(), None, [1e8, 1e8]), {}), NotImplementedError
    )


def test_checks_issue_no_warning_and_use_up_none() -> None:
    chain = torch.ops.aten.chain_matmul.default  # deprecated, which torch says once
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        assert eager_error(chain, ([MATRIX],), {}) is None
        assert issued == [] and not torch.is_warn_always_enabled()
        torch.chain_matmul(MATRIX)
    assert len(issued) == 1


def test_operators_without_checks_on_tensors_without_elements() -> None:
    mask = ones(10, 10, dtype=torch.bool)
    rows, columns = torch.zeros(10, 1, dtype=torch.int64), torch.zeros(1, 10, dtype=torch.int64)

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        read = torch.ops.aten._unsafe_masked_index(x, mask, [rows, columns], 2.0)
        added = torch.ops.aten._unsafe_masked_index_put_accumulate(x, mask, [rows, columns], y)
        return read + 1, added * 2, torch.masked_select(x, x > 0)

    for x in (ones(5, 0), ones(0, 0), ones(4, 5)):
        torch._dynamo.reset()
        with (
            litz.config.patch(fallback="error"),
            torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        ):
            torch.testing.assert_close(
                torch.compile(program, backend="litz")(x, ones(10, 10)), program(x, ones(10, 10))
            )


def test_tensors_of_a_gpu_are_checked_where_they_have_no_elements() -> None:
    pool, half = torch.ops.aten._adaptive_avg_pool2d.default, torch.float16
    copy = torch.ops.aten._to_copy.default
    with FakeTensorMode():
        images, full = (
            torch.empty_strided((1, 2, height, 4), (8, 4, 4, 1), device="cuda") for height in (0, 2)
        )
    assert isinstance(eager_error(pool, (images, [2, 2]), {}), RuntimeError)
    assert eager_error(pool, (full, [2, 2]), {}) is None
    assert eager_error(copy, (images,), {"dtype": half, "device": torch.device("cuda:0")}) is None
