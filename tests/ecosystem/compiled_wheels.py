"""Libraries whose wheels are compiled for one build of torch each, importable beside any other.

Where their operators do not load, torchvision's are declared without kernels, but for non-maximum suppression, which
detectors run and which is written out here; torchaudio is told that it was built without any.
"""

from __future__ import annotations

import importlib
import sys
import types

import torch
from zoo.torchvision_operators import import_torchvision

_KERNELS = torch.library.Library("torchvision", "FRAGMENT")


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Return the indices of the boxes that no better box overlaps, by falling score."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order, chosen = scores.argsort(descending=True, stable=True), []
    while order.numel():
        best, order = order[0], order[1:]
        chosen.append(best)
        low, high = (
            torch.maximum(boxes[best, :2], boxes[order, :2]),
            torch.minimum(boxes[best, 2:], boxes[order, 2:]),
        )
        overlap = (high - low).clamp(min=0).prod(-1)
        order = order[overlap / (areas[best] + areas[order] - overlap) <= iou_threshold]
    return torch.stack(chosen) if chosen else scores.new_empty(0, dtype=torch.int64)


def import_compiled_wheels() -> None:
    """Import torchvision and torchaudio where they are installed."""
    if importlib.util.find_spec("torchvision"):
        if not _loads("torchvision"):
            _KERNELS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _KERNELS.impl("nms", _nms, "CPU")
            import_torchvision()
            vars(importlib.import_module("torchvision.extension"))["_has_ops"] = lambda: True
    if importlib.util.find_spec("torchaudio") and not _loads("torchaudio"):
        extension = types.ModuleType("torchaudio._extension")
        extension._IS_TORCHAUDIO_EXT_AVAILABLE = extension._IS_ALIGN_AVAILABLE = False  # type: ignore[attr-defined]
        extension.fail_if_no_align = lambda function: function  # type: ignore[attr-defined]
        sys.modules["torchaudio._extension"] = extension
        importlib.import_module("torchaudio")


def _loads(name: str) -> bool:
    """Import a library; report whether its operators loaded."""
    try:
        importlib.import_module(name)
    except (OSError, RuntimeError):
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
        return False
    return True
