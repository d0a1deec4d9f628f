"""Writes ``model.litz`` of an MLP with a symbolic batch, for the programs in C and Rust: ``write_model.py FOLDER``."""

import sys
from pathlib import Path

import torch
from torch import nn

import litz


def main(folder: Path) -> None:
    """Write the model, an input of 5 rows, and the results that eager computes for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10), nn.Softmax(dim=1)).eval()
    batch = torch.export.Dim("batch", min=2, max=256)
    litz.aot_compile(model, (torch.randn(4, 32),), dynamic_shapes=({0: batch},), path=folder / "model.litz")
    x = torch.randn(5, 32)
    x.numpy().tofile(folder / "input.bin")
    model(x).detach().numpy().tofile(folder / "expected.bin")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
