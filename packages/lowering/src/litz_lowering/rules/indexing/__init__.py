"""Rules of views, indexing, gathers, scatters, joins and tensor creation."""

from litz_lowering.rules.indexing import (
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
