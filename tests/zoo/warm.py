"""The process from which the cases' processes are forked: everything is imported, and where no GPU is visible one
model is compiled."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile

import torch

import litz
from zoo.cases import Built
from zoo.execution import run
from zoo.worker import BUILDERS, judged

torch.set_num_threads(1)
for module in BUILDERS.values():
    with contextlib.suppress(ImportError):
        importlib.import_module(module)
# With a GPU the compilation would initialise CUDA, and forked processes could not use it.
if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
    with tempfile.TemporaryDirectory(prefix="litz-zoo-") as folder, litz.config.patch(cache_dir=folder):
        built = Built(
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), {"input": torch.ones(2, 4)}, "warm"
        )
        judged(built, "training", run(built.model, built.inputs, "training"))
