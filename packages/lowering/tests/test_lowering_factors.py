"""Singular values and eigenvalues: vectors are computed where somebody reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.passes import PassContext
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.without_vectors import WithoutVectors

SYMMETRIC = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(0))
SYMMETRIC = SYMMETRIC + SYMMETRIC.mT


@pytest.mark.parametrize(
    ("program", "alone"),
    [
        (torch.linalg.svdvals, True),
        (torch.linalg.eigvalsh, True),
        (lambda a: torch.linalg.matrix_norm(a, "nuc"), True),
        (lambda a: torch.linalg.svd(a)[1:], False),
        (lambda a: torch.linalg.eigh(a)[1].abs(), False),
        (lambda a: torch.linalg.svd(a, full_matrices=False).S, True),
    ],
    ids=["svdvals", "eigvalsh", "nuclear", "svd", "eigh", "S"],
)
def test_vectors_that_nobody_reads_are_not_computed(
    program: Callable[[torch.Tensor], object], alone: bool
) -> None:
    with torch.no_grad():
        gm = make_fx(program, tracing_mode="fake")(SYMMETRIC)
    gm.graph.eliminate_dead_code()
    source = AtenGraph(gm, gm.graph)
    found = WithoutVectors().apply(source, PassContext({}))
    assert (found is not source) == alone
    if alone:
        call = next(node for node in found.graph.nodes if "linalg" in str(node.target))
        vectors = "compute_uv" if "svd" in str(call.target) else "compute_v"
        assert call.kwargs[vectors] is False
        assert call.meta["val"][0 if "svd" in str(call.target) else 1].numel() == 0
    found.graph.lint()
    results = torch.fx.Interpreter(torch.fx.GraphModule(gm, found.graph)).run(SYMMETRIC)
    torch.testing.assert_close(results, program(SYMMETRIC))
