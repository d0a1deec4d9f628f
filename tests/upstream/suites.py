"""Test modules of PyTorch that are run, and the way in which each of them calls the compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """A test module of PyTorch.

    `path` is relative to PyTorch's folder `test`. A `wrapped` module has eager tests, each of which runs under
    `torch.compile` as PyTorch does with `PYTORCH_TEST_WITH_INDUCTOR`. The others call the compiler themselves. A module
    that `claims_gpu` skips even its tests of the CPU unless there is a GPU, so it is told that there is one, and its
    tests of GPUs are left out.
    """

    path: str
    wrapped: bool = False
    claims_gpu: bool = False

    @property
    def name(self) -> str:
        """Return the path without its suffix."""
        return self.path.removesuffix(".py")


SUITES = (
    Suite("inductor/test_torchinductor.py"),
    Suite("inductor/test_control_flow.py", claims_gpu=True),
    Suite("inductor/test_unbacked_symints.py", claims_gpu=True),
    Suite("inductor/test_torchinductor_dynamic_shapes.py", claims_gpu=True),
    Suite("inductor/test_foreach.py"),
    Suite("inductor/test_compiled_optimizers.py"),
    Suite("inductor/test_compiled_autograd.py"),
    Suite("inductor/test_flex_attention.py"),
    Suite("inductor/test_auto_functionalize.py", claims_gpu=True),
    Suite("inductor/test_cpu_repro.py"),
    Suite("functorch/test_control_flow.py"),
    Suite("functorch/test_aotdispatch.py", wrapped=True),
    Suite("functorch/test_eager_transforms.py", wrapped=True),
    Suite("functorch/test_vmap.py", wrapped=True),
    Suite("test_indexing.py", wrapped=True),
    Suite("test_view_ops.py", wrapped=True),
    Suite("test_reductions.py", wrapped=True),
    Suite("test_torch.py", wrapped=True),
    Suite("test_nn.py", wrapped=True),
    Suite("test_linalg.py", wrapped=True),
    Suite("test_optim.py", wrapped=True),
    Suite("test_shape_ops.py", wrapped=True),
    Suite("test_sort_and_select.py", wrapped=True),
    Suite("test_scatter_gather_ops.py", wrapped=True),
    Suite("test_type_promotion.py", wrapped=True),
    Suite("test_tensor_creation_ops.py", wrapped=True),
    Suite("test_binary_ufuncs.py", wrapped=True),
    Suite("test_unary_ufuncs.py", wrapped=True),
    Suite("test_foreach.py", wrapped=True),
    Suite("test_ops.py", wrapped=True),
)
"""All suites, in the order in which they run."""
