"""Reinforcement learning."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss, DQNLoss
from torchrl.objectives.value.functional import generalized_advantage_estimate

from ecosystem.programs import Backend, Step, program, training


def _observations(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 4)


@program
def deep_q_learning(backend: Backend) -> Step:
    actor = QValueActor(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), spec=None, action_space="one-hot"
    )
    loss = DQNLoss(actor, action_space="one-hot", delay_value=False)

    def value(observation: torch.Tensor, following: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
        data = TensorDict(
            {
                "observation": observation,
                "action": torch.eye(3, dtype=torch.bool)[torch.tensor([0, 1, 2, 0, 1, 2])],
                "next": {
                    "observation": following,
                    "reward": reward,
                    "done": torch.zeros(6, 1, dtype=torch.bool),
                    "terminated": torch.zeros(6, 1, dtype=torch.bool),
                },
            },
            [6],
        )
        result: torch.Tensor = loss(data)["loss"]
        return result

    batches = [(_observations(), _observations(), torch.randn(6, 1)) for _ in range(2)]
    return training(backend.compile(value), loss, batches)


@program
def clipped_policy(backend: Backend) -> Step:
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    split = nn.Sequential(network, _Parameters())
    actor = ProbabilisticActor(
        TensorDictModule(split, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Linear(4, 1), in_keys=["observation"])
    loss = ClipPPOLoss(actor, critic, entropy_bonus=False)

    def value(observation: torch.Tensor, action: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        data = {
            "observation": observation,
            "action": action,
            "action_log_prob": torch.zeros(6),
            "advantage": advantage,
            "value_target": advantage,
        }
        terms = loss(TensorDict(data, [6]))
        result: torch.Tensor = terms["loss_objective"] + terms["loss_critic"]
        return result

    batches = [(_observations(), torch.rand(6, 2) - 0.5, torch.randn(6, 1)) for _ in range(2)]
    return training(backend.compile(value), loss, batches)


class _Parameters(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, scale = x.chunk(2, -1)
        return mean, nn.functional.softplus(scale) + 0.1


@program
def advantages(backend: Backend) -> Step:
    head = nn.Linear(4, 1)

    def loss(observation: torch.Tensor, following: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
        done = torch.zeros(1, 6, 1, dtype=torch.bool)
        advantage, target = generalized_advantage_estimate(
            0.9, 0.95, head(observation)[None], head(following)[None], reward[None], done, done
        )
        return (advantage.square() + target.square()).mean()

    batches = [(_observations(), _observations(), torch.randn(6, 1)) for _ in range(2)]
    return training(backend.compile(loss), head, batches)
