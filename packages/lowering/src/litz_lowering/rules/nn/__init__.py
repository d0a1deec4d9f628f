"""Rules of layers: normalisation, pooling, resampling, losses, quantisation."""

from litz_lowering.rules.nn import (
    antialias,
    attention,
    batch_norm,
    conv,
    fake_quantize,
    fractional_pool,
    grid_sample,
    loss,
    norm,
    pool,
    quantize,
    resampling_gradients,
    unpool,
    upsample,
)

__all__ = [
    "antialias",
    "attention",
    "batch_norm",
    "conv",
    "fake_quantize",
    "fractional_pool",
    "grid_sample",
    "loss",
    "norm",
    "pool",
    "quantize",
    "resampling_gradients",
    "unpool",
    "upsample",
]
