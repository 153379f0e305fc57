"""Soft actor-critic as a LightningModule."""

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_modules.rl.networks import CriticEnsemble, frozen, move_towards
from lightning_modules.rl.off_policy import OffPolicyModule, Transitions
from lightning_modules.rl.sac import actor_loss, critic_loss, soft_value_target, temperature_loss
from lightning_modules.rl.squashed_gaussian import GaussianActor


class SACModule(OffPolicyModule):
    """Soft actor-critic with two critics and a learned temperature.

    Args:
        obs_dim: length of an observation; None takes it from the environment.
        action_dim: length of an action; None takes it from the environment.
        hidden: widths of the hidden layers of actor and critics.
        lr: learning rate of Adam for actor, critics and temperature.
        discount: γ.
        target_rate: share of the way that the target critics move at each update.
        reward_scale: factor of all rewards in the losses; returns are reported unscaled.
        initial_alpha: temperature at the start.
        target_entropy: entropy that the temperature aims at; None is minus the number of action dimensions.
        max_actor_grad_norm: longer gradients of the actor are shortened to this length; None: never.
        **options: those of :class:`OffPolicyModule`.

    Source: Haarnoja et al. 2018 (arXiv 1812.05905).
    """

    smoke: ClassVar[dict[str, Any]] = {"batch_size": 16}
    compiled = ("_target", "value_objective", "policy_objective")

    actor: Any

    def __init__(
        self,
        obs_dim: int | None = None,
        action_dim: int | None = None,
        hidden: Sequence[int] = (256, 256),
        lr: float = 3e-4,
        discount: float = 0.99,
        target_rate: float = 0.005,
        reward_scale: float = 1.0,
        initial_alpha: float = 1.0,
        target_entropy: float | None = None,
        max_actor_grad_norm: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.save_hyperparameters()
        if obs_dim is None or action_dim is None:
            raise ValueError("SACModule needs obs_dim and action_dim: give them, or a data module that knows its environment")
        self.lr, self.discount, self.target_rate, self.reward_scale = lr, discount, target_rate, reward_scale
        self.max_actor_grad_norm = max_actor_grad_norm
        self.target_entropy = -float(action_dim) if target_entropy is None else target_entropy
        self.actor = GaussianActor(obs_dim, action_dim, hidden)
        self.critics = CriticEnsemble(obs_dim, action_dim, hidden)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial_alpha)))
        # torch takes longer to collect parameters than to use them
        self._critic_weights, self._target_weights = list(self.critics.parameters()), list(self.target_critics.parameters())

    @property
    def alpha(self) -> Tensor:
        """The temperature, without gradient."""
        return self.log_alpha.detach().exp()

    def explore(self, obs: Tensor) -> Tensor:
        return self.draw(obs)[0]

    def exploit(self, obs: Tensor) -> Tensor:
        return self.actor.mode(obs)

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions, ``[B, m]``, with their log-densities, ``[B]``."""
        return self.actor.sample(obs)

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        optimizers: Any = self.optimizers()
        critic_optimizer, policy_optimizer = optimizers
        alpha = self.alpha
        value_loss = self.value_objective(batch, self._target(batch, alpha))
        self._descend(critic_optimizer, value_loss)
        with frozen(self._critic_weights):
            policy_loss, log_prob_B, logs = self.policy_objective(batch["obs"], alpha)
            alpha_loss = temperature_loss(self.log_alpha, log_prob_B, self.target_entropy)
            self._descend(policy_optimizer, policy_loss + alpha_loss, self.max_actor_grad_norm)
        move_towards(self._target_weights, self._critic_weights, self.target_rate)
        losses = {"critic_loss": value_loss, "actor_loss": policy_loss}
        found = {**losses, "alpha": alpha, "entropy": -log_prob_B.mean(), **logs}
        return {name: value.detach() for name, value in found.items()}

    def value_objective(self, batch: Transitions, target_B: Tensor) -> Tensor:
        """Return the critics' loss."""
        return critic_loss(self.critics(batch["obs"], batch["action"]), target_B)

    def policy_objective(self, obs: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the actor's loss, the log-densities for the temperature, ``[B]``, and what to log."""
        action, log_prob_B = self.draw(obs)
        return actor_loss(self.critics(obs, action), log_prob_B, alpha), log_prob_B, {}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for the critics, and another for actor and temperature, whose losses have no parameter in common."""
        groups = (self.critics.parameters(), [*self.actor.parameters(), self.log_alpha])
        return [torch.optim.Adam(group, lr=self.lr, fused=True) for group in groups]

    @torch.no_grad()
    def _target(self, batch: Transitions, alpha: Tensor) -> Tensor:
        """Values that the critics should have, ``[B]``."""
        action, log_prob_B = self.draw(batch["next_obs"])
        value_JB = self.target_critics(batch["next_obs"], action)
        reward_B = self.reward_scale * batch["reward"]
        return soft_value_target(reward_B, batch["terminated"], value_JB, log_prob_B, alpha, self.discount)

    def _descend(self, optimizer: Any, loss: Tensor, max_actor_grad_norm: float | None = None) -> None:
        """Take one optimiser step down the gradient of a loss."""
        optimizer.zero_grad(set_to_none=True)
        self.manual_backward(loss)
        if max_actor_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.actor.parameters(), max_actor_grad_norm)
        optimizer.step()
