"""Families of operators that intentionally run as ATen kernels, with reasons.

``fallback="error"`` allows these calls, and ``docs/operators.md`` lists them.
"""

from __future__ import annotations

import re
from functools import lru_cache

SORTS = "sorting runs in a library, except for short rows on a GPU"
SIZES = "the result has a data-dependent size"
_ALGEBRA = "linear algebra runs in a library"
_FOURIER = "Fourier transforms run in a library"
_PRODUCTS = "matmuls of prepacked, scaled or grouped operands run in a library"
CONVOLUTIONS = "convolutions run in a library"
ATTENTION = "fused attention and recurrent cells run in a library"
_RESIZING = "gradients of bicubic resizing run in a library"
_LABELS = "lists of labels that end at the first negative one are read by a library"
_FORMATS = "loops are generated for dense tensors only"
_ANSWERS = "the result is not a tensor"
_DEVICES = "the operator is specific to one library or device"

_FAMILIES: dict[str, str] = {
    SORTS: r"argsort|msort|kthvalue|(nan)?median|mode",
    SIZES: r"nonzero(_static)?|_?unique2?|unique_(dim|consecutive|dim_consecutive)",
    _ALGEBRA: r"_?linalg_(?!_|vector_norm|cross).*|_?cholesky.*|geqrf|or[mg]qr|lu_unpack|triangular_solve|_spsolve"
    r"|_compute_linear_combination",
    _FOURIER: r"_fft_.*",
    _PRODUCTS: r"_addmm_activation|_int_mm|_(scaled_|grouped_)+mm(_v2)?|_(convert_)?weight_.*(int4pack|int8pack).*"
    r"|_dyn_quant_.*|_mixed_dtypes_linear|_foreach_mm|(linear|matmul)_backward",
    CONVOLUTIONS: r"_?convolution(_.*)?|conv_(tbc|depthwise3d)|_conv_depthwise2d|_?slow_conv.*",
    ATTENTION: r"_(flash|efficient|triton)_.*attention.*|_fused_sdp_choice|_scaled_dot_product_.*|_triton_.*attention"
    r"|_native_multi_head_attention|_transformer_encoder_layer_fwd|_transform_bias_rescale_qkv|_thnn_fused_.*_cell.*"
    r"|quantized_(gru|lstm)|_pack_padded_sequence",
    _RESIZING: r"upsample_bicubic2d_backward",
    _LABELS: r"multilabel_margin_loss_(for|back)ward",
    _FORMATS: r"(?!_?fake_).*(sparse|nested|jagged|coalesce|quantize|cslt|compressed).*|to_padded_tensor|hspmm"
    r"|_spdiags|_nnz|_?(c?col_|c?row_)?indices(_copy)?|_?values(_copy)?|_?(dense_|sparse_)dim|_dim[IV]|_convert_indices_.*"
    r"|_to_dense|int_repr|q_.*|qscheme|_make_per_.*",
    _ANSWERS: r"allclose|equal|is_(pinned|same_size|set_to)|_has_same_storage_numel",
    _DEVICES: r"_?(cudnn|miopen|mps|mkldnn|nnpack)_.*|_?lstm_mps.*|_use_.*_ctc_loss|to_mkldnn|.*_for_mps",
}
"""Pattern of operator names (overload packets) of each family."""

_PATTERNS = {reason: re.compile(pattern) for reason, pattern in _FAMILIES.items()}


@lru_cache(maxsize=4096)
def fallback_reason(overload: str) -> str | None:
    """Reason why an overload such as ``aten.topk.default`` runs in ATen; None outside the families."""
    namespace, _, name = overload.partition(".")
    if namespace != "aten":
        return None
    packet = name.partition(".")[0]
    return next((reason for reason, pattern in _PATTERNS.items() if pattern.fullmatch(packet)), None)
