"""Rules of views, indexing, gathers, scatters, joins and tensor creation."""

from litz_lowering.rules.indexing import (
    channel_shuffle,
    concat,
    embedding_bag,
    factory,
    in_place,
    index,
    index_put,
    masked,
    pad,
    repeat,
    scatter,
    slice_scatter,
    view,
)

__all__ = [
    "channel_shuffle",
    "concat",
    "embedding_bag",
    "factory",
    "in_place",
    "index",
    "index_put",
    "masked",
    "pad",
    "repeat",
    "scatter",
    "slice_scatter",
    "view",
]
