"""Catalogue of libraries: what is installed for each, and the module with its programs. It imports none of them."""

from __future__ import annotations

import ast
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("libraries")


@dataclass(frozen=True, slots=True)
class Library:
    """A library by the name of its distribution.

    `module` is that of `ecosystem.libraries` with its programs, by default the distribution's name; `requirements` are
    what is installed, by default the distribution; `alone` installs them without their dependencies, for wheels that
    want another torch.
    """

    name: str
    module: str = ""
    requirements: tuple[str, ...] = ()
    alone: bool = False

    @property
    def path(self) -> Path:
        """File with the programs."""
        return FOLDER / f"{self.module or self.name.replace('-', '_')}.py"

    @property
    def wanted(self) -> tuple[str, ...]:
        """Requirements to install."""
        return self.requirements or (self.name,)

    def programs(self) -> tuple[str, ...]:
        """Return the names of the programs, without importing the library."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        return tuple(
            node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list
        )

    def version(self) -> str:
        """Return the installed version; empty where the library is not installed."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return ""


@dataclass(frozen=True, slots=True)
class Case:
    """A program of a library."""

    library: str
    name: str


LIBRARIES: tuple[Library, ...] = (
    Library("torch"),
    Library("torchvision", alone=True),
    Library("torchaudio", alone=True),
    Library("transformers"),
    Library("accelerate", requirements=("accelerate", "transformers")),
    Library("peft", requirements=("peft", "transformers")),
    Library("sentence-transformers"),
    Library("diffusers"),
    Library("lightning"),
    Library("pytorch-ignite"),
    Library("timm"),
    Library("vit-pytorch"),
    Library("segmentation-models-pytorch"),
    Library("open-clip-torch"),
    Library("ultralytics"),
    Library("monai"),
    Library("kornia"),
    Library("lightly"),
    Library("pytorch-metric-learning"),
    Library("denoising-diffusion-pytorch"),
    Library("x-transformers"),
    Library("mambapy"),
    Library("vector-quantize-pytorch"),
    Library("rotary-embedding-torch"),
    Library("einops"),
    Library("torchao"),
    Library("speechbrain"),
    Library("torch_geometric"),
    Library("e3nn"),
    Library("torchdiffeq"),
    Library("torchsde"),
    Library("neuraloperator", module="neuralop"),
    Library("gpytorch"),
    Library("botorch"),
    Library("pyro-ppl"),
    Library("nflows"),
    Library("normflows"),
    Library("zuko"),
    Library("tensordict"),
    Library("torchrl"),
    Library("torchmetrics"),
    Library("pytorch-tabnet"),
    Library("captum"),
    Library("higher"),
    Library("opacus"),
    Library("mup"),
    Library("ema-pytorch"),
    Library("lion-pytorch"),
    Library("pytorch_optimizer"),
    Library("schedulefree"),
    Library("prodigyopt"),
)
"""Libraries in the order of the tables."""

BY_NAME = {library.name: library for library in LIBRARIES}
