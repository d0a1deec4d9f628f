"""Decomposition table for AOTAutograd: torch's decompositions of the operators listed here.

Operators with a lowering rule are removed from the lists' selection, since lowering them directly is faster than
tracing a decomposition and keeps more structure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch._decomp import decomposition_table as torch_table
from torch._decomp import get_decompositions

from litz_lowering.decompose.quantized import of_quantized

ACTIVATIONS = """
    celu glu glu_backward log_sigmoid_backward log_sigmoid_forward prelu _prelu_kernel_backward selu
    rrelu_with_noise_backward
""".split()
POINTWISE = """
    deg2rad rad2deg sinc special_entr special_log_ndtr special_xlog1py special_zeta xlogy logaddexp2
    mvlgamma isin fill floor_divide heaviside addr aminmax
""".split()
LOSSES = """
    mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits soft_margin_loss
    soft_margin_loss_backward multi_margin_loss nll_loss_forward nll_loss_backward nll_loss2d_forward
    nll_loss2d_backward
""".split()
NORMS = """
    native_group_norm_backward _fused_rms_norm_backward renorm norm linalg_vector_norm _weight_norm_interface
    native_layer_norm_backward native_batch_norm_backward native_batch_norm
    native_group_norm cudnn_batch_norm cudnn_batch_norm_backward miopen_batch_norm_backward
""".split()
REDUCTIONS = """
    trace count_nonzero nansum all any logsumexp
""".split()
MATRICES = """
    addmv mv dot vdot linalg_cross _euclidean_dist dist
""".split()
SHAPES = """
    pixel_shuffle pixel_unshuffle rot90 split_with_sizes_copy unfold_copy
    diag_embed block_diag meshgrid expand_copy permute_copy t_copy transpose_copy unsqueeze_copy squeeze_copy
    view_copy diagonal_copy as_strided_copy unbind_copy slice_scatter select_scatter diagonal_scatter
    select_backward slice_backward diagonal_backward unfold_backward as_strided_scatter narrow_copy unbind
    _chunk_cat resize_as im2col col2im take affine_grid_generator
""".split()
FACTORIES = """
    zeros zeros_like ones ones_like new_zeros new_ones new_full new_empty empty_like eye linspace logspace
    tril_indices triu_indices hann_window
""".split()
GATHERING = """
    embedding_dense_backward index_add index_copy index_fill _unsafe_index _unsafe_index_put
    _unsafe_masked_index _unsafe_masked_index_put_accumulate
""".split()
RESAMPLING = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
    adaptive_max_pool2d
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
""".split()
DROPOUT = ["native_dropout_backward"]

TOPICS = (
    ACTIVATIONS, POINTWISE, LOSSES, NORMS, REDUCTIONS, MATRICES, SHAPES, FACTORIES, GATHERING, RESAMPLING, DROPOUT,
)  # fmt: skip

NAMES = tuple(name for topic in TOPICS for name in topic)

_ROUNDED = frozenset("col2im unfold_backward affine_grid_generator linspace logspace hann_window".split())
"""Those of the shapes and factories that compute with floats."""

MOVES = tuple(name for topic in (SHAPES, FACTORIES) for name in topic if name not in _ROUNDED)
"""Operators whose decompositions give eager's bits, since they move elements or fill memory."""

RECOMPUTED = """
    native_layer_norm native_layer_norm_backward _fused_rms_norm native_group_norm
    _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update_functional
    native_batch_norm_backward batch_norm_backward
    _softmax _safe_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data logsumexp linalg_vector_norm
    hardswish hardswish_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward elu_backward
    softplus_backward mish_backward _prelu_kernel detach transpose
""".split()
"""Operators that AOTAutograd's partitioner never recomputes, and whose decompositions it does, in part.

It would save the logarithms of a softmax for the backward where a row's maximum and sum are enough, and the f32 result
of a norm where the row's mean and deviation are.
"""

_TORCHS = ("aten", "prims", "prim")
"""Namespaces of torch's operators, of which only listed ones are decomposed."""

NONE: Mapping[torch._ops.OperatorBase, Callable[..., Any]] = MappingProxyType({})
"""The decompositions of a program that registered none."""

Decompositions = dict[torch._ops.OperatorBase, Callable[..., Any]]


def decomposition_table(
    served: Collection[str],
    own: Mapping[torch._ops.OperatorBase, Callable[..., Any]] = NONE,
    recomputed: Callable[[str], bool] | None = None,
    names: Iterable[str] = NAMES,
) -> Decompositions:
    """Select torch's decompositions of the operators ``names``, without overloads in ``served``.

    Those of ``quantized_decomposed`` are included once the program has registered them, those of other libraries'
    operators where the program put them into torch's table, and ``own``, which come first. So are those in
    ``RECOMPUTED`` for which ``recomputed`` is true, if it is given, in ``served`` or not.
    """
    others: Decompositions = {op: how for op, how in _users_entries() if op.namespace not in _TORCHS}
    found: Decompositions = {**_of(names), **of_quantized(), **others, **own}
    table = {op: how for op, how in found.items() if str(op) not in served}
    if recomputed is not None:
        table |= {op: how for op, how in _of(RECOMPUTED).items() if op not in own and recomputed(str(op))}
    return table


def _of(names: Iterable[str]) -> Decompositions:
    """Torch's decompositions of those operators that this torch has."""
    known = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    return {**get_decompositions(known)}


def users_decompositions() -> dict[str, Callable[..., Any]]:
    """Decompositions in torch's table that the program put there, of listed operators and of other libraries', by
    operator."""
    return {
        f"decomposition of {op}": how
        for op, how in _users_entries()
        if op.namespace not in _TORCHS
        or (op.namespace == "aten" and op.overloadpacket.__name__ in (*NAMES, *RECOMPUTED))
    }


def _users_entries() -> Iterator[tuple[torch._ops.OpOverload, Callable[..., Any]]]:
    """Yield the entries of torch's table that are not torch's."""
    # This runs for each graph, so each defining module is checked only once.
    if all(_is_torchs(module) for module in set(map(attrgetter("__module__"), torch_table.values()))):
        return
    for op, how in torch_table.items():
        if isinstance(op, torch._ops.OpOverload) and not _is_torchs(how.__module__):
            yield op, how


def _is_torchs(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "torch"
