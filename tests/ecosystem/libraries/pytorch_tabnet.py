"""Tables by attention."""

from __future__ import annotations

import torch
from pytorch_tabnet.tab_network import TabNet

from ecosystem.programs import Backend, Step, inference, program, training


def _model() -> TabNet:
    return TabNet(
        8,
        3,
        n_d=4,
        n_a=4,
        n_steps=2,
        cat_idxs=[6, 7],
        cat_dims=[4, 5],
        cat_emb_dim=[2, 2],
        virtual_batch_size=8,
        group_attention_matrix=torch.eye(8),
    )


def _rows() -> torch.Tensor:
    return torch.cat([torch.randn(8, 6), torch.randint(4, (8, 2)).to(torch.get_default_dtype())], 1)


@program
def network_training(backend: Backend) -> Step:
    model = _model()
    call = backend.compile(model)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores, sparsity = call(x)
        return torch.nn.functional.cross_entropy(scores, y) + 1e-3 * sparsity

    return training(loss, model, [(_rows(), torch.randint(3, (8,))) for _ in range(2)])


@program
def network_inference(backend: Backend) -> Step:
    return inference(backend.compile(_model().eval()), [(_rows(),), (_rows(),)])
