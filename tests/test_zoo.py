"""Tests of the zoo's judge, which reports differences from eager and nothing else, and of its small configurations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from interpreted import lines_by_case
from torch import nn
from zoo.cases import Built, Case, NotRunnable, accepted, settled
from zoo.execution import MODES, Mode, in_double, rounded_otherwise, run
from zoo.judge import difference
from zoo.report import line, page
from zoo.row import Outcome, Row, read
from zoo.shrinking import shrunk
from zoo.worker import judged, reference, right_with_fixed_signs

import litz


class Toy(nn.Module):
    """Two layers with a norm that keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.norm(torch.nn.functional.gelu(self.first(x)))
        return {"hidden": hidden, "scores": self.second(hidden).softmax(-1)}


def toy() -> Built:
    torch.manual_seed(0)
    return Built(settled(Toy()), {"x": torch.randn(5, 6)}, "Toy")


def found(wrap: Callable[[nn.Module], Callable[..., Any]], mode: Mode) -> str | None:
    """Return the judge's verdict on another way to run the toy model."""
    built = toy()
    model, inputs = built.model, built.inputs
    return difference(
        run(model, inputs, mode, wrap),
        run(model, inputs, mode),
        in_double(model, inputs, mode),
        lambda: [rounded_otherwise(model, inputs, mode, seed) for seed in range(2)],
    )


def changed(result: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Any:
    return lambda model: lambda **inputs: result(model(**inputs))


def forgetful(model: nn.Module) -> Callable[..., Any]:
    norm = model.get_submodule("norm")
    assert isinstance(norm, nn.BatchNorm1d)
    norm.momentum = 0.11
    return model


DIFFERENCES: dict[str, tuple[Mode, Callable[[nn.Module], Callable[..., Any]]]] = {
    "output 0.1: value": ("inference", changed(lambda r: {**r, "scores": r["scores"] * 1.0001})),
    "output 0.1: dtype": ("inference", changed(lambda r: {**r, "scores": r["scores"].double()})),
    "output 0.0: strides": (
        "inference",
        changed(lambda r: {**r, "hidden": r["hidden"].t().contiguous().t()}),
    ),
    "structure": ("inference", changed(lambda r: {"hidden": r["hidden"]})),
    "gradient": ("training", changed(lambda r: {**r, "scores": r["scores"].detach() + 0 * r["scores"]})),
    "buffer norm.running_mean: value": ("training", forgetful),
}


@pytest.mark.parametrize("where", DIFFERENCES)
def test_a_difference_is_found(where: str) -> None:
    mode, wrap = DIFFERENCES[where]
    said = found(wrap, mode)
    assert said is not None and said.startswith(where)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_other_rounding_is_no_difference(mode: Mode) -> None:
    def otherwise(model: nn.Module) -> Callable[..., Any]:
        twin = model.get_submodule("second")
        weight = twin.weight
        assert isinstance(weight, nn.Parameter)
        with torch.no_grad():
            weight.copy_(torch.nextafter(weight, weight + 1))
        return model

    assert found(lambda model: model, mode) is None
    assert found(otherwise, mode) is None


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_litz_is_judged(mode: Mode, tmp_path: Path) -> None:
    built = toy()
    with litz.config.patch(cache_dir=str(tmp_path), fallback="warn"):
        outcome = judged(built, mode, run(built.model, built.inputs, mode))
    assert outcome.verdict == "pass" and outcome.graphs and outcome.kernels


class Kinked(nn.Module):
    """A ReLU with an operand so near to zero that a rounding decides its sign, which differs in the compiled run in
    single precision; `factor` is an injected error of its gradient."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16))
        self.act = nn.ReLU()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        compiled = torch.compiler.is_compiling()
        own = x * self.weight
        near = own - own.detach() + (1e-9 if compiled else -1e-9)
        active: torch.Tensor = self.act(torch.where(torch.arange(16) == 3, near, own))
        return active + (self.factor if compiled else 1.0) * (own - own.detach())


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_gradients_are_judged_with_fixed_relu_signs(factor: float, tmp_path: Path) -> None:
    built = Built(Kinked(factor), {"x": torch.ones(2, 16)}, "Kinked")
    expected = run(built.model, built.inputs, "training")
    exact, _ = reference(built, "training", expected)
    wrap = functools.partial(torch.compile, backend="litz")
    with litz.config.patch(cache_dir=str(tmp_path)):
        said = difference(run(built.model, built.inputs, "training", wrap), expected, exact, list)
        assert said is not None and "weight: value" in said
        assert right_with_fixed_signs(built, "training", ("wrong", said)) == (factor == 1.0)


class Otherwise(nn.Module):
    """A function with another result where it is compiled, by whatever backend."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() if torch.compiler.is_compiling() else x.cos()


def test_what_differs_without_litz_too(tmp_path: Path) -> None:
    built = Built(Otherwise(), {"x": torch.randn(4)}, "Otherwise")
    with litz.config.patch(cache_dir=str(tmp_path)):
        outcome = judged(built, "inference", run(built.model, built.inputs, "inference"))
    assert outcome.verdict == "differs without litz" and "output 0.0: value" in outcome.reason


def test_a_reference_that_takes_another_way_is_none(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() if x.dtype == torch.float64 else x.cos()

    built = Built(Branches(), {"x": torch.randn(4)}, "Branches")
    expected = run(built.model, built.inputs, "inference")
    exact, apart = reference(built, "inference", expected)
    assert apart == "output 0.0" and exact["output 0.0"].dtype == torch.float32


def test_inputs_that_eager_takes() -> None:
    model = toy().model
    good = {"x": torch.randn(2, 6)}
    assert accepted(model, [{"x": torch.randn(2, 5)}, good]) is good
    with pytest.raises(NotRunnable, match="shapes cannot be multiplied"):
        accepted(model, [{"x": torch.randn(2, 5)}])


@dataclass
class VisionConfig:
    image_size: int = 224
    hidden_sizes: tuple[int, ...] = (64, 128, 512)
    depths: list[int] = field(default_factory=lambda: [3, 6, 3])
    sub_configs: ClassVar[dict[str, Any]] = {}


@dataclass
class WholeConfig:
    vocab_size: int = 50000
    hidden_size: int = 768
    tie_word_embeddings: bool = True
    attention_dropout: float = 0.1
    image_token_id: int = 49999
    pad_token_id: int | None = 1
    head_dim: int | None = None
    vision_config: Any = None
    sub_configs: ClassVar[dict[str, Any]] = {"vision_config": VisionConfig}


def test_configurations_are_small() -> None:
    config = shrunk(WholeConfig, {"vision_config": {"image_size": 48}})
    assert (config.vocab_size, config.hidden_size, config.head_dim) == (128, 32, None)
    assert config.attention_dropout == 0.0 and config.tie_word_embeddings and config.pad_token_id == 1
    assert 60 <= config.image_token_id < 128
    assert config.vision_config.image_size == 48
    assert config.vision_config.hidden_sizes == (32, 64, 256) and config.vision_config.depths == [1, 1, 1]


def test_rows_are_kept_and_told(tmp_path: Path) -> None:
    right = Row(
        Case("timm", "right"), "r18", 5, "", {"inference": Outcome("pass", "", 1, 3, {"no rule": 2}, 0.5)}
    )
    wrong = Row(Case("transformers", "wrong"), "W", 5, "", {"training": Outcome("wrong", "output 0: value")})
    refused = Row(Case("timm", "refused"), eager_error="ValueError: no")
    rows = [right, wrong, refused]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(row.to_line() + "\n" for row in rows))
    assert list(read(path).values()) == rows
    assert "output 0: value" in line(wrong)
    text = page(rows, "# The zoo")
    assert "| transformers | 1 | 0 | 1 | 0 |" in text and "| timm | 1 | 1 | 0 | 1 |" in text
    assert "| no rule | 2 | 1 |" in text and "ValueError: no" in text


@pytest.mark.timeout(300)
def test_a_model_is_judged_by_the_kernels_of_a_gpu() -> None:
    found = lines_by_case(Path(__file__).with_name("triton_class_token.py"), seconds=280)
    assert [found[mode]["verdict"] for mode in MODES] == ["pass", "pass"], found
    assert found["training"]["kernels"] > 1
