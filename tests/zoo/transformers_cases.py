"""Tiny models of the architectures of transformers, from its mapping of configurations to models."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from zoo import sizes
from zoo.cases import SEED, Built, Inputs, accepted, generator, settled
from zoo.shrinking import shrunk
from zoo.torchvision_operators import import_torchvision

with contextlib.suppress(ImportError):  # which transformers imports where it is there
    import_torchvision()

ALIASES = frozenset({"timm_backbone", "timm_wrapper"})
"""Names that stand for models of another library."""


def names() -> list[str]:
    """Return the families in the mapping's order, one for each class of models: of several names the shortest."""
    chosen: dict[str, str] = {}
    for name in sorted(MODEL_MAPPING_NAMES, key=len):
        model = MODEL_MAPPING_NAMES[name]
        chosen.setdefault(model if isinstance(model, str) else model[0], name)
    return [name for name in MODEL_MAPPING_NAMES if name in chosen.values() and name not in ALIASES]


def build(name: str) -> Built:
    """Build a family's model. Raises ``NotRunnable`` where eager takes none of the inputs."""
    model_name = MODEL_MAPPING_NAMES[name]
    model_class = getattr(transformers, model_name if isinstance(model_name, str) else model_name[0])
    config = shrunk(CONFIG_MAPPING[name], sizes.FAMILIES.get(name, {}))
    torch.manual_seed(SEED)
    model = settled(model_class(config))
    return Built(model, accepted(model, attempts(model)), model_class.__name__)


def attempts(model: Any) -> Iterator[Inputs]:
    """Yield the inputs to try: every set of names that the model takes, in every layout that the names may mean."""
    parameters = inspect.signature(model.forward).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
        and parameter.kind is not parameter.VAR_POSITIONAL
    ]
    tried: set[tuple[str, ...]] = set()
    for wanted in sizes.INPUTS:
        if not set(wanted) <= set(parameters):
            continue
        together = tuple(dict.fromkeys((*required, *wanted)))
        if together in tried or not together:
            continue
        tried.add(together)
        yield from _layouts(model.config, together)


def _layouts(config: Any, together: tuple[str, ...]) -> Iterator[Inputs]:
    makers = [_shapes(config, name) for name in together]
    for shapes in itertools.product(*makers):
        draw = generator(SEED)
        yield {name: _tensor(name, shape, draw) for name, shape in zip(together, shapes)}


def _field(config: Any, *wanted: str, default: int) -> int:
    """Return the first of some fields that the configuration or a part of it has."""
    parts = [config, *(getattr(config, name, None) for name in config.sub_configs)]
    for name, part in itertools.product(wanted, parts):
        value = getattr(part, name, None)
        value = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def _shapes(config: Any, name: str) -> list[tuple[int, ...]]:
    """Return the shapes that an input of that name may have, the likeliest first."""
    batch, sequence = sizes.BATCH, sizes.SEQUENCE
    width = _field(config, "hidden_size", "d_model", "n_embd", default=sizes.WIDTH)
    mels = _field(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", default=16)
    channels = _field(config, "num_channels", "in_channels", "in_chans", default=3)
    side = _field(config, "image_size", "img_size", default=64)
    frames = _field(config, "num_frames", default=2)
    positions = _field(config, "max_source_positions", default=32)
    length = _field(config, "context_length", "seq_length", default=sequence)
    known: dict[str, list[tuple[int, ...]]] = {
        "pixel_values": [
            (batch, channels, side, side),
            (batch, channels, 64, 64),
            (batch, channels, 128, 128),
            (batch, frames, channels, side, side),
            (batch, 1, channels, side, side),
        ],
        "pixel_values_videos": [(batch, frames, channels, side, side)],
        "input_features": [
            (batch, mels, 2 * positions),
            (batch, 64, mels),
            (batch, 1, 64, mels),
            (batch, mels, 64),
        ],
        "input_values": [(batch, 2000), (batch, 1, 2000), (batch, 64, mels), (batch, mels, 64)],
        "inputs_embeds": [(batch, sequence, width)],
        "hidden_states": [(batch, sequence, width), (sequence, width)],
        "past_values": [(batch, length), (batch, length, _field(config, "num_input_channels", default=1))],
        "inputs": [(batch, sequence, _field(config, "d_model", default=width))],
        "bbox": [(batch, sequence, 4)],
        "audio_values": [(batch, 1, 2000), (batch, 2000)],
        "attention_mask": [(batch, sequence)],
    }
    return known.get(name, [(batch, sequence)])


FLOATING = ("pixel", "values", "features", "embeds", "hidden", "inputs", "states")


def _tensor(name: str, shape: tuple[int, ...], draw: torch.Generator) -> torch.Tensor:
    """Return an input: numbers around zero, boxes, or tokens that stand for nothing special."""
    if name == "bbox":
        corners = torch.randint(0, 30, (*shape[:-1], 2), generator=draw)
        return torch.cat((corners, corners + 10), -1)
    if name == "inputs" or any(part in name for part in FLOATING if part != "inputs" or name == part):
        return torch.randn(shape, generator=draw)
    if name.endswith("mask"):
        return torch.ones(shape, dtype=torch.int64)
    return torch.randint(5, 60, shape, generator=draw)
