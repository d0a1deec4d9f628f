"""``TRITON_INTERPRET=1 python tests/triton_class_token.py``: verdicts on a model whose kernels are those of a GPU."""

from __future__ import annotations

import json

import torch
from torch import Tensor, nn
from zoo.cases import Built
from zoo.execution import MODES, run
from zoo.worker import judged


class ClassToken(nn.Module):
    """Patches after a token of their own, with positions, attention and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        y: Tensor = self.block(tokens)
        return y[:, 0]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Built(ClassToken(), {"x": torch.randn(2, 4, 8)}, "class token")
    for mode in MODES:
        found = judged(model, mode, run(model.model, model.inputs, mode), interpreted=True)
        print(
            json.dumps(
                {"case": mode, "verdict": found.verdict, "reason": found.reason, "kernels": found.kernels}
            )
        )
