"""Networks of off-policy agents on vectors (plain torch).

Legend: B batch, J critics, n observation, m action.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Perceptron with ReLU between its layers and a linear last one."""
    layers: list[nn.Module] = []
    for in_dim, out_dim in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(in_dim, out_dim), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class EnsembleLinear(nn.Module):
    """J linear layers side by side, each with the initial weights of its own ``nn.Linear``.

    Shapes: ``[J, B, in]`` to ``[J, B, out]`` in one product.
    """

    def __init__(self, members: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        layers = [nn.Linear(in_dim, out_dim) for _ in range(members)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().t() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x_JBi: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x_JBi, self.weight)


class CriticEnsemble(nn.Module):
    """J action values of the same state and action, evaluated together.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        hidden: widths of the hidden layers.
        members: number J of critics.
    """

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int] = (256, 256), members: int = 2) -> None:
        super().__init__()
        self.members = members
        sizes = [obs_dim + action_dim, *hidden, 1]
        layers: list[nn.Module] = []
        for in_dim, out_dim in zip(sizes, sizes[1:], strict=False):
            layers += [EnsembleLinear(members, in_dim, out_dim), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, obs_Bn: Tensor, action_Bm: Tensor) -> Tensor:
        """Return the values, ``[J, B]``."""
        x_Bi = torch.cat([obs_Bn, action_Bm], dim=-1)
        return self.layers(x_Bi.expand(self.members, -1, -1)).squeeze(-1)


@torch.no_grad()
def move_towards(target: Sequence[Tensor], source: Sequence[Tensor], rate: float) -> None:
    """Move every tensor of ``target`` by ``rate`` of the way to that of ``source``."""
    torch._foreach_lerp_(list(target), list(source), rate)


@contextmanager
def frozen(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Let no gradient reach these parameters, for a time."""
    parameters = list(parameters)
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
