"""Models for deployment, and the process that loads one: it imports no compiler, and compares with eager's results.

``python deployed_models.py FOLDER`` loads ``FOLDER/model.litz``, calls it with each of the saved arguments, and prints
what it loaded as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from zoo.torchvision_operators import import_torchvision

BATCH = torch.export.Dim("batch", min=2, max=64)
"""The dynamic batch."""


@dataclass(frozen=True)
class Case:
    """A model, its example arguments, and further ones that it is called with."""

    make: Callable[[], nn.Module]
    arguments: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    dynamic_shapes: Any = None
    sizes: tuple[int, ...] = (4,)
    needs: str = "torch"


class Block(nn.Module):
    """A transformer block with hand-written attention."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        found: torch.Tensor = x + self.mlp(self.after(x))
        return found


class Counted(nn.Module):
    """A cache and a counter as buffers, which each call overwrites; arguments and results in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))
        self.calls = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.cache = nn.Buffer(torch.zeros(4, 8))
        self.hidden = nn.Buffer(torch.randn(8), persistent=False)

    def forward(self, x: torch.Tensor, *, state: dict[str, torch.Tensor], name: str = "") -> dict[str, Any]:
        self.calls.add_(1)
        self.cache[1:] = self.cache[:-1].clone()
        self.cache[0] = x.mean(0) * self.scale + self.hidden
        state["sum"].add_(self.cache.sum(0))
        table = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
        return {"cache": self.cache * table, "views": [x.t(), state["sum"]], "name": name, "none": None}


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor, y: tuple[torch.Tensor, int]) -> torch.Tensor:
        other, times = y
        found: torch.Tensor = self.second(self.first(x).relu()) * times + other
        return found


class Language(nn.Module):
    """A model of transformers that returns one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(ids)[0]
        return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3),
        nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def gpt2() -> nn.Module:
    import_torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, use_cache=False)
    return Language(GPT2LMHeadModel(config))


def bert() -> nn.Module:
    import_torchvision()
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64
    )
    return Language(BertModel(config))


def image(size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(size, 3, 16, 16),), {}


def ids(size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randint(0, 64, (size, 12)),), {}


CASES = {
    "mlp": Case(mlp, lambda n: ((torch.randn(n, 16),), {}), ({0: BATCH},), (4, 2, 33)),
    "block": Case(Block, lambda n: ((torch.randn(n, 10, 32),), {}), {"x": {0: BATCH}}, (4, 2, 33)),
    "cnn": Case(lambda: cnn().eval(), image),
    "cnn_in_training": Case(cnn, image, ({0: BATCH},), (4, 3)),
    "counted": Case(
        Counted,
        lambda n: ((torch.randn(n, 8),), {"state": {"sum": torch.randn(8)}, "name": "litz"}),
        {"x": {0: BATCH}, "state": {"sum": {}}, "name": None},
        (4, 2, 4),
    ),
    "tied": Case(Tied, lambda n: ((torch.randn(n, 8),), {"y": (torch.randn(n, 8), 3)})),
    "gpt2": Case(lambda: gpt2().eval(), ids, {"ids": {0: BATCH}}, (4, 2, 7), "transformers"),
    "bert": Case(lambda: bert().eval(), ids, {"ids": {0: BATCH}}, (4, 2, 7), "transformers"),
}
"""The models, by name."""


def agrees(found: Any, expected: Any) -> None:
    """Compare results in containers: tensors by value, dtype and strides, others for equality."""
    leaves, spec = pytree.tree_flatten(found)
    wanted, form = pytree.tree_flatten(expected)
    assert spec == form
    for one, other in zip(leaves, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, check_stride=True)
        else:
            assert type(one) is type(other) and one == other


def load_and_compare(folder: Path) -> dict[str, Any]:
    """Load the model of a folder, and return the largest difference from the results that were saved with it."""
    import litz

    model = litz.load(folder / "model.litz")
    calls = torch.load(folder / "calls.pt", weights_only=True)
    for args, kwargs, expected, after in calls:
        agrees(model(*args, **kwargs), expected)
        agrees((args, kwargs), after)
    torch.testing.assert_close(model.state_dict(), torch.load(folder / "state.pt", weights_only=True))
    stages = ("litz_lowering", "litz_scheduler", "torch._dynamo", "torch._inductor", "triton")
    return {
        "loaded": sorted(name for name in sys.modules if name.startswith(stages)),
        "calls": len(calls),
        "isa": model.isa,
    }


if __name__ == "__main__":
    print(json.dumps(load_and_compare(Path(sys.argv[1]))))
