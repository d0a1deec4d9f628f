"""Graph neural networks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    GATv2Conv,
    GraphSAGE,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)

from ecosystem.programs import Backend, Step, inference, program, training


def _graph(nodes: int = 10, edges: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(nodes, 6), torch.randint(nodes, (2, edges))


def _training(backend: Backend, model: nn.Module, batches: int = 2) -> Step:
    call = backend.compile(model)
    graphs = [(*_graph(), torch.randint(3, (10,))) for _ in range(batches)]
    return training(lambda x, edges, y: F.cross_entropy(call(x, edges), y), model, graphs)


@program
def gcn_training(backend: Backend) -> Step:
    return _training(backend, GCN(6, 16, 2, 3))


@program
def gat_training(backend: Backend) -> Step:
    return _training(backend, GAT(6, 16, 2, 3, heads=2))


@program
def sage_inference_dynamic(backend: Backend) -> Step:
    model = backend.compile(GraphSAGE(6, 16, 2, 3).eval(), dynamic=True)
    return inference(model, [_graph(nodes, edges) for nodes, edges in ((10, 30), (12, 41), (7, 19))])


class Classifier(nn.Module):
    """A classifier of graphs in a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GIN(6, 16, 2)
        self.second = GATv2Conv(16, 8, heads=2)
        self.third = TransformerConv(16, 8, heads=2)
        self.head = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edges).relu()
        x = self.third(self.second(x, edges).relu(), edges)
        pooled = torch.cat([global_add_pool(x, batch, 2), global_mean_pool(x, batch, 2)], -1)
        result: torch.Tensor = self.head(pooled)
        return result


@program
def graphs_in_a_batch(backend: Backend) -> Step:
    model = Classifier()
    call = backend.compile(model)
    batch = torch.tensor([0] * 6 + [1] * 4)
    return training(lambda x, edges: call(x, edges, batch).square().mean(), model, [_graph(), _graph()])
