"""Rewards brought to a scale on which discounted returns have a known size."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from datamodules.rl.normalisers import RunningMeanStd


class ReturnScaler:
    r"""The number by which rewards are divided, the same on all ranks at every moment.

    While it acts, every environment keeps a running discounted return, with the variance and the greatest size that it ever had:

    .. math::
        G \leftarrow \gamma (1 - \text{done})\, G + r, \qquad
        \text{scale} = \max\Bigl(\sqrt{\mathrm{Var}(G) + \epsilon},\; \max \lvert G \rvert / \text{bound}\Bigr)

    so that scaled returns vary by about 1 and none so far is longer than ``bound``. The step that ends an episode forgets the
    rewards before it, as in the authors' code. What a rank sees is counted apart until :meth:`merge_ranks`.

    Args:
        num_envs: environments of this process.
        discount: γ.
        bound: greatest scaled return.
        epsilon: added to the variance.

    Attributes:
        scale: divisor of rewards; 1 before data.

    Source: SimbaV2 (arXiv 2502.15280) and its code.
    """

    def __init__(self, num_envs: int, discount: float, bound: float = 5.0, epsilon: float = 1e-8) -> None:
        self.discount, self.bound, self.epsilon = discount, bound, epsilon
        self.returns = torch.zeros(num_envs, dtype=torch.float64)
        self.shared, self.unmerged = RunningMeanStd([]), RunningMeanStd([])
        self.greatest, self._unmerged_greatest = 0.0, 0.0
        self.scale = 1.0

    def update(self, reward: Tensor, done: Tensor) -> None:
        """Count a step of all environments of this rank: rewards, and whether the step ended an episode, both ``[num_envs]``."""
        self.returns = self.discount * torch.where(done, 0.0, self.returns) + reward
        self.unmerged.update(self.returns)
        self._unmerged_greatest = max(self._unmerged_greatest, float(self.returns.abs().max()))

    def merge_ranks(self) -> None:
        """Take in what every rank has seen since the last call; all ranks must call it."""
        parts: list[Any] = [(self.unmerged.state_dict(), self._unmerged_greatest)]
        if dist.is_initialized():
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, (self.unmerged.state_dict(), self._unmerged_greatest))
        for statistics, greatest in parts:
            seen = RunningMeanStd([])
            seen.load_state_dict(statistics)
            self.shared.merge(seen)
            self.greatest = max(self.greatest, greatest)
        self.unmerged, self._unmerged_greatest = RunningMeanStd([]), 0.0
        self._set_scale()

    def __call__(self, reward: Tensor) -> Tensor:
        """Scale rewards of any shape; before the first merge they stay as they are."""
        return reward / self.scale

    def state_dict(self) -> dict[str, Any]:
        """Return what all ranks share."""
        return {"statistics": self.shared.state_dict(), "greatest": self.greatest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.shared.load_state_dict(state_dict["statistics"])
        self.greatest = state_dict["greatest"]
        self._set_scale()

    def rank_state_dict(self) -> dict[str, Any]:
        """Return what this rank alone knows."""
        return {"returns": self.returns.clone(), "unmerged": self.unmerged.state_dict(), "greatest": self._unmerged_greatest}

    def load_rank_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``rank_state_dict`` was taken.

        Raises:
            ValueError: if there were another number of environments.
        """
        if len(state_dict["returns"]) != len(self.returns):
            raise ValueError(
                f"the saved returns are of {len(state_dict['returns'])} environments, now there are {len(self.returns)}"
            )
        self.returns = state_dict["returns"].clone()
        self.unmerged.load_state_dict(state_dict["unmerged"])
        self._unmerged_greatest = state_dict["greatest"]

    def _set_scale(self) -> None:
        if self.shared.count:
            deviation = float((self.shared.variance + self.epsilon).sqrt())
            self.scale = max(deviation, self.greatest / self.bound)


def discount_of(time_limit: int, action_repeat: int = 1) -> float:
    r"""Return a discount that fits to the length of an episode.

    .. math::
        \gamma = \mathrm{clip}\Bigl(\frac{T / 5 - 1}{T / 5},\ 0.95,\ 0.995\Bigr), \qquad
        T = \text{time limit} / \text{action repeat}

    Args:
        time_limit: steps of an episode before repeats.
        action_repeat: how often an action is applied.

    Source: TD-MPC2 (arXiv 2310.16828), as used by SimbaV2.
    """
    effective = time_limit / action_repeat / 5
    return min(max((effective - 1) / effective, 0.95), 0.995)
