"""Gaussian processes."""

from __future__ import annotations

import gpytorch
import torch

from ecosystem.programs import Backend, Step, inference, program, training


class Process(gpytorch.models.ExactGP):
    """An exact process with an RBF kernel."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@program
def exact_marginal_likelihood(backend: Backend) -> Step:
    x = torch.linspace(0, 1, 12)
    y = (6 * x).sin() + 0.1 * torch.randn(12)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    call = backend.compile(model)
    return training(lambda: -marginal(call(x), y), model, [()])


@program
def matern_kernel(backend: Backend) -> Step:
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=3))
    call = backend.compile(lambda x, y: kernel(x, y).to_dense())
    return inference(call, [(torch.randn(7, 3), torch.randn(5, 3)) for _ in range(2)])


@program
def deep_kernel_training(backend: Backend) -> Step:
    features = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    kernel = gpytorch.kernels.RBFKernel()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        covariance = kernel(features(x)).to_dense() + 0.1 * torch.eye(len(x), dtype=x.dtype)
        factor = torch.linalg.cholesky(covariance)
        solved = torch.cholesky_solve(y[:, None], factor)[:, 0]
        return (y * solved).mean() + factor.diagonal().log().mean()

    batches = [(torch.randn(8, 4), torch.randn(8)) for _ in range(2)]
    return training(
        backend.compile(loss), [*features.named_parameters(), *kernel.named_parameters()], batches
    )
