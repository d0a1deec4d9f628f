"""Normalising flows by splines and autoregressive networks."""

from __future__ import annotations

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.nn.nets import ResidualNet
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform, Transform
from nflows.transforms.coupling import PiecewiseRationalQuadraticCouplingTransform
from nflows.transforms.permutations import ReversePermutation

from ecosystem.programs import Backend, Step, program, training


def _training(backend: Backend, transforms: list[Transform]) -> Step:
    flow = Flow(CompositeTransform(transforms), StandardNormal([4]))
    call = backend.compile(flow.log_prob)
    return training(lambda x: -call(inputs=x).mean(), flow, [(torch.randn(6, 4),), (torch.randn(6, 4),)])


@program
def autoregressive(backend: Backend) -> Step:
    transforms = [MaskedAffineAutoregressiveTransform(4, 8) for _ in range(2)]
    return _training(backend, [transforms[0], ReversePermutation(4), transforms[1]])


@program
def splines(backend: Backend) -> Step:
    coupling = PiecewiseRationalQuadraticCouplingTransform(
        torch.tensor([1, 0, 1, 0]),
        lambda i, o: ResidualNet(i, o, 8, num_blocks=1),
        4,
        tails="linear",
        tail_bound=3.0,
    )
    return _training(backend, [coupling])
