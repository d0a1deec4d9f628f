"""`numerics="strict"`: results and gradients have eager's bits, and what cannot have them runs as eager's kernel."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opinfo.entries import Unit
from opinfo.execution import program_of, run
from opinfo.samples import samples_of
from opinfo.worker import prepared
from torch import Tensor, nn
from torch._dynamo.utils import counters

import litz
from litz.settings import Config
from litz_ir.errors import ConfigError
from litz_lowering.aten.bit_equal import STRICT

STRICTLY = {"numerics": "strict"}
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, math.inf, -math.inf, math.nan, 1e-8]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    with litz.config.patch(fallback="error"):
        yield
    torch._dynamo.reset()


def same_bits(actual: Tensor, expected: Tensor) -> bool:
    """Report whether two tensors have the same bits; NaN equals NaN, whose bits differ between vectors and scalars."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(actual, expected)
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}[expected.itemsize]
    found, wanted = (
        each.detach().nan_to_num(7.0, math.inf, -math.inf).view(words) for each in (actual, expected)
    )
    return torch.equal(found, wanted) and torch.equal(actual.isnan(), expected.isnan())


def values(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two operands with every pair of special values, and as many others, in whole vectors and a tail."""
    torch.manual_seed(1)
    x, y = torch.tensor(SPECIAL).repeat(len(SPECIAL)), torch.tensor(SPECIAL).repeat_interleave(len(SPECIAL))
    return torch.cat((x, 4 * torch.randn(215))).to(dtype), torch.cat((y, 4 * torch.randn(215))).to(dtype)


GENERATED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / y, -x, x.abs(), 1.0 - x, x * 0.1, x / 3, 0.7 / x),
    "reciprocal": lambda x, y: (x.reciprocal(),),
    "rounded": lambda x, y: (x.floor(), x.ceil(), x.trunc(), x.round(), x.frac(), x.sign(), x.square(), x**2),
    "chains": lambda x, y: (x * y + x, (x * 0.3 + y) * x - y, x * x * x + 0.5 * y),
    "limits": lambda x, y: (
        x.clamp(-1, 1), x.clamp_min(0.0), torch.maximum(x, y), torch.minimum(x, y), F.relu6(x),
        F.relu(x), F.hardtanh(x), F.leaky_relu(x, 0.1), F.threshold(x, 0.5, 2.0), x.nan_to_num(),
        F.hardshrink(x),
    ),
    "tests": lambda x, y: (x < y, x == y, x.ne(0), x.isnan(), x.isinf(), x.signbit(), torch.where(x > y, x, y)),
    "signs": lambda x, y: (torch.copysign(x, y), torch.heaviside(x, y), torch.nextafter(x, y) if x.itemsize > 2 else x),
    "moves": lambda x, y: (
        torch.cat((x, y)), torch.stack((x, y), 1), x.flip(0), x[::2].clone(), x[y.argsort()],
        F.pad(x, (1, 2), value=3.0), x.roll(3), x.repeat(2), torch.full_like(x, 0.1), x.masked_fill(y > 0, 0.1),
        x.gather(0, y.argsort()),
    ),
    "casts": lambda x, y: (x.float(), x.double(), x.bfloat16(), x.half(), (x * y).bfloat16().float() + y),
}  # fmt: skip
"""Programs of operators that are generated under `strict`."""


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated_has_eagers_bits(name: str, dtype: torch.dtype) -> None:
    program, (x, y) = GENERATED[name], values(dtype)
    found, expected = torch.compile(program, backend="litz", options=STRICTLY)(x, y), program(x, y)
    wrong = [k for k, (a, b) in enumerate(zip(found, expected, strict=True)) if not same_bits(a, b)]
    assert not wrong
    assert counters["litz"]["kernels"] > 0, "loops compute them"


def test_sums_that_are_scaled_are_eagers() -> None:
    x, y = values(torch.float32)
    assert same_bits(torch.compile(lambda x, y: torch.add(x, y, alpha=0.3), backend="litz", options=STRICTLY)(x, y),
                     torch.add(x, y, alpha=0.3))  # fmt: skip
    assert counters["litz"]["kernels"] == 0


def _attention(x: Tensor, heads: int, bias: Tensor | None) -> Tensor:
    n, t, c = x.shape
    q, k, v = (each.view(n, t, heads, c // heads).transpose(1, 2) for each in (x, x * 0.5, x + 1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(c // heads)
    weights = torch.softmax(scores if bias is None else scores + bias, -1)
    return (weights @ v).transpose(1, 2).reshape(n, t, c)


class Bert(nn.Module):
    """Post-norm layers with GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.norm_2 = nn.Embedding(50, 32), nn.LayerNorm(32), nn.LayerNorm(32)
        self.out, self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        x = self.norm(x + self.out(_attention(x, 4, None)))
        return self.norm_2(x + self.down(F.gelu(self.up(x))))


class Gpt2(Bert):
    """Pre-norm layers with a causal mask and the tanh form of GELU."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        t = tokens.shape[1]
        mask = torch.full((t, t), -math.inf, dtype=x.dtype).triu(1)
        x = x + self.out(_attention(self.norm(x), 4, mask))
        x = x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return x @ self.words.weight.t()


class Llama(Bert):
    """RMS norms, rotary positions, SiLU gates and fused attention."""

    def _rms(self, x: Tensor) -> Tensor:
        return self.norm.weight * (
            x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        ).to(x)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        angle = torch.arange(tokens.shape[1])[:, None] * 10000 ** (-torch.arange(0, 8, 2) / 8)
        cos, sin = (torch.cat((each, each), -1).to(x) for each in (angle.cos(), angle.sin()))
        q, k = (each.view(*tokens.shape, 4, 8).transpose(1, 2) for each in (self._rms(x), self.out(x)))
        q, k = (a * cos + torch.cat((-a[..., 4:], a[..., :4]), -1) * sin for a in (q, k))
        a = F.scaled_dot_product_attention(q, k, k, is_causal=True).transpose(1, 2).reshape_as(x)
        return x + self.down(F.silu(self.up(a)) * self.up(self._rms(x)))


class ResNet(nn.Module):
    """Convolutions, batch norms and residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.norm = (
            nn.Conv2d(3, 8, 3, 2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.norm_2, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.relu(x + self.norm_2(self.conv(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS = [(Bert, torch.float32), (Gpt2, torch.float32), (Llama, torch.bfloat16), (ResNet, torch.float32)]


@pytest.mark.parametrize("kind, dtype", MODELS, ids=str)
def test_small_models_and_their_gradients(kind: type[nn.Module], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = kind().to(dtype)
    given = torch.randn(2, 3, 24, 24).to(dtype) if kind is ResNet else torch.randint(0, 50, (2, 11))
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="litz", options=STRICTLY)
    expected, found = model(given), compiled(given)
    assert same_bits(found, expected)
    expected.float().pow(2).sum().backward()
    found.float().pow(2).sum().backward()
    for (name, own), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert own.grad is None or (other.grad is not None and same_bits(other.grad, own.grad)), name
    if kind is ResNet:
        model.eval(), twin.eval()
        with torch.no_grad():
            assert same_bits(compiled(given), model(given)), "in inference weights are not prepacked"


SAMPLE = """
    add div.no_rounding_mode softmax sum var addmm nn.functional.layer_norm nn.functional.cross_entropy
    nn.functional.max_pool2d pow sqrt index_put
""".split()
"""Entries of the operator database, generated ones and others."""


@pytest.mark.sampled
@pytest.mark.parametrize("entry", SAMPLE)
def test_operators_of_the_database(entry: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    unit, mode = Unit(entry, "f32"), "gradient"
    with prepared(str(tmp_path_factory.getbasetemp() / "strict")), litz.config.patch(numerics="strict"):
        program = program_of(unit, mode)
        for sample in samples_of(unit, mode, 1):
            expected = run(program, sample.copied(), mode)
            found = run(torch.compile(program, backend="litz"), sample.copied(), mode)
            assert found.error is None and expected.error is None
            wrong = [
                label
                for label, leaf in expected.leaves.items()
                if isinstance(leaf, Tensor) and not same_bits(found.leaves[label], leaf)
            ]
            assert not wrong, sample.describe()


def test_explanations_say_what_is_eagers() -> None:
    x = torch.randn(4, 40)
    with litz.config.patch(numerics="strict"):
        report = litz.explain(lambda x: torch.softmax(x * 2 + 1, -1), x)
    text = str(report)
    assert "options about results: numerics='strict'" in text
    assert [each.target for each in report.fallbacks if each.reason == STRICT] == ["aten._softmax.default"]
    (graph,) = report.graphs
    assert len(graph.kernels) == 1 and graph.promises == "numerics='strict'"


def test_other_numerics_are_another_graph() -> None:
    def program(x: Tensor) -> Tensor:
        return x.exp()

    x = torch.randn(40)
    for numerics, kernels in (("eager", 1), ("strict", 0), ("eager", 1)):
        counters.clear()
        torch._dynamo.reset()
        torch.compile(program, backend="litz", options={"numerics": numerics})(x)
        assert counters["litz"]["kernels"] == kernels


def test_strict_and_batch_invariant_exclude_one_another() -> None:
    with pytest.raises(ConfigError, match="exclude one another"):
        Config(numerics="strict", batch_invariant=True).in_force()
