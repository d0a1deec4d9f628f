"""Lowering of ATen graphs (``torch.fx``) to litz loop graphs.

`docs/architecture.md` and `docs/operators.md` in the repository of litz describe it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_lowering.aten.fallback import Fallback
    from litz_lowering.aten.overlapping_operands import refuse_overlapping_operands
    from litz_lowering.contexts.context import LoweringContext
    from litz_lowering.contexts.options import LoweringOptions
    from litz_lowering.contexts.origins import origin_of
    from litz_lowering.contexts.values import Declined, Tensor
    from litz_lowering.decompose.symbolic_floats import symbolic_floats
    from litz_lowering.decompose.whole_gradients import whole_gradients
    from litz_lowering.driver import lower
    from litz_lowering.fx_passes.aten_graph import AtenGraph
    from litz_lowering.fx_passes.pipeline import remove_no_ops
    from litz_lowering.joint_partition import partition
    from litz_lowering.lowered_graph import LoweredGraph
    from litz_lowering.meta_corrections import correct_metadata
    from litz_lowering.registrations import registered
    from litz_lowering.tables import (
        RefusedByEager,
        checked_decompositions,
        decomposition,
        decompositions,
        rule,
    )
    from litz_lowering.types.devices import Devices, gpus_of
    from litz_lowering.types.size_bounds import bound_sizes
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
    "RefusedByEager",
    "Tensor",
    "bound_sizes",
    "checked_decompositions",
    "correct_metadata",
    "decomposition",
    "decompositions",
    "gpus_of",
    "lower",
    "origin_of",
    "partition",
    "refuse_overlapping_operands",
    "registered",
    "remove_no_ops",
    "rule",
    "symbolic_floats",
    "torch_dtype",
    "whole_gradients",
]

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "AtenGraph": "litz_lowering.fx_passes.aten_graph",
        "bound_sizes": "litz_lowering.types.size_bounds",
        "checked_decompositions": "litz_lowering.tables",
        "correct_metadata": "litz_lowering.meta_corrections",
        "Declined": "litz_lowering.contexts.values",
        "decomposition": "litz_lowering.tables",
        "decompositions": "litz_lowering.tables",
        "Devices": "litz_lowering.types.devices",
        "Fallback": "litz_lowering.aten.fallback",
        "gpus_of": "litz_lowering.types.devices",
        "lower": "litz_lowering.driver",
        "LoweredGraph": "litz_lowering.lowered_graph",
        "LoweringContext": "litz_lowering.contexts.context",
        "LoweringOptions": "litz_lowering.contexts.options",
        "origin_of": "litz_lowering.contexts.origins",
        "partition": "litz_lowering.joint_partition",
        "refuse_overlapping_operands": "litz_lowering.aten.overlapping_operands",
        "RefusedByEager": "litz_lowering.tables",
        "registered": "litz_lowering.registrations",
        "remove_no_ops": "litz_lowering.fx_passes.pipeline",
        "rule": "litz_lowering.tables",
        "symbolic_floats": "litz_lowering.decompose.symbolic_floats",
        "Tensor": "litz_lowering.contexts.values",
        "torch_dtype": "litz_lowering.types.torch_types",
        "whole_gradients": "litz_lowering.decompose.whole_gradients",
    }
)
"""The module that defines each public name, imported when the name is first used: a graph from a cache is not lowered.
"""

__getattr__, __dir__ = deferred(__name__, _MODULES)
