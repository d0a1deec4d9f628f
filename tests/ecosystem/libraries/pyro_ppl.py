"""Probabilistic programs: models with guides, and distributions."""

from __future__ import annotations

import pyro
import torch
from pyro import distributions as dist
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample
from torch import nn

from ecosystem.programs import Backend, Step, program, training


@program
def variational_autoencoder(backend: Backend) -> Step:
    pyro.clear_param_store()
    encoder, decoder = nn.Linear(12, 8), nn.Linear(4, 12)
    encode, decode = backend.compile(encoder), backend.compile(decoder)

    def model(x: torch.Tensor) -> None:
        pyro.module("decoder", decoder)
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 4), torch.ones(len(x), 4)).to_event(1))
            pyro.sample("x", dist.Bernoulli(logits=decode(z)).to_event(1), obs=x)

    def guide(x: torch.Tensor) -> None:
        pyro.module("encoder", encoder)
        with pyro.plate("data", len(x)):
            mean, scale = encode(x).chunk(2, -1)
            pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))

    svi = SVI(model, guide, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
    x = torch.randint(2, (6, 12)).float()

    def step(number: int) -> dict[str, object]:
        loss = svi.step(x)
        parameters = [*encoder.named_parameters("encoder"), *decoder.named_parameters("decoder")]
        return {"loss": loss, **{f"parameter {name}": value for name, value in parameters}}

    return step


class Regression(PyroModule):
    """Bayesian linear regression."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](3, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([1]).to_event(1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = self.linear(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("observed", dist.Normal(mean, 0.5), obs=y)
        return mean


@program
def compiled_loss_of_a_regression(backend: Backend) -> Step:
    pyro.clear_param_store()
    model = Regression()
    guide = AutoNormal(model)
    x, y = torch.randn(8, 3), torch.randn(8)
    guide(x, y)
    loss = backend.compile(Trace_ELBO().differentiable_loss)
    return training(lambda: loss(model, guide, x, y), guide, [()])


@program
def log_densities(backend: Backend) -> Step:
    raw = nn.Parameter(torch.randn(6, 3))

    def loss(value: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
        a, b = raw.exp().unbind(-1)[:2]
        terms = [
            dist.Beta(a, b).log_prob(value),
            dist.Gamma(a, b).log_prob(positive),
            dist.Dirichlet(raw.exp()).log_prob(raw.detach().softmax(-1)),
            dist.StudentT(a + 1, b, 1.0).log_prob(positive),
            dist.NegativeBinomial(a, logits=b).log_prob(positive.round()),
            dist.VonMises(a, b).log_prob(value),
        ]
        return -torch.stack(terms).mean()

    batches = [(torch.rand(6) * 0.8 + 0.1, torch.rand(6) * 4 + 0.5) for _ in range(2)]
    return training(backend.compile(loss), [("raw", raw)], batches)
