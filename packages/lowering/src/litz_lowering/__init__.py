"""Lowering of ATen graphs (``torch.fx``) to litz loop graphs.

`docs/architecture.md` and `docs/operators.md` in the repository of litz describe it.
"""

from litz_lowering.aten.fallback import Fallback
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.options import LoweringOptions
from litz_lowering.contexts.origins import origin_of
from litz_lowering.contexts.registry import decomposition, rule
from litz_lowering.contexts.values import Declined, Tensor
from litz_lowering.driver import lower
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.pipeline import remove_no_ops
from litz_lowering.joint_partition import partition
from litz_lowering.lowered_graph import LoweredGraph
from litz_lowering.meta_corrections import correct_metadata
from litz_lowering.tables import decompositions, registered
from litz_lowering.types.devices import Devices, gpus_of
from litz_lowering.types.torch_types import torch_dtype

__version__ = "0.2.0"

__all__ = [
    "AtenGraph",
    "Declined",
    "Devices",
    "Fallback",
    "LoweredGraph",
    "LoweringContext",
    "LoweringOptions",
    "Tensor",
    "correct_metadata",
    "decomposition",
    "decompositions",
    "gpus_of",
    "lower",
    "origin_of",
    "partition",
    "registered",
    "remove_no_ops",
    "rule",
    "torch_dtype",
]
