"""TD7 with optional redundancy reduction in the style of its published single-file script: one object per network, nothing fused.

Our agent is tested against it, number by number, and timed beside it.

Source: Fujimoto et al. 2023 (arXiv 2306.02451) and its published code, rewritten from the description of the algorithm.
"""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


def avg_l1_norm(x: Tensor) -> Tensor:
    """Divide by the mean absolute value of the last axis."""
    return x / x.abs().mean(-1, keepdim=True).clamp(min=1e-8)


class Encoder(nn.Module):
    """Embeddings of states, and of state-action pairs."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int, hidden: int) -> None:
        super().__init__()
        self.zs1, self.zs2, self.zs3 = nn.Linear(obs_dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, latent_dim)
        self.zsa1, self.zsa2 = nn.Linear(latent_dim + action_dim, hidden), nn.Linear(hidden, hidden)
        self.zsa3 = nn.Linear(hidden, latent_dim)

    def zs(self, obs: Tensor) -> Tensor:
        """Embed states."""
        z = functional.elu(self.zs1(obs))
        z = functional.elu(self.zs2(z))
        return avg_l1_norm(self.zs3(z))

    def zsa(self, zs: Tensor, action: Tensor) -> Tensor:
        """Embed pairs."""
        z = functional.elu(self.zsa1(torch.cat([zs, action], 1)))
        z = functional.elu(self.zsa2(z))
        return self.zsa3(z)


class Actor(nn.Module):
    """A deterministic policy."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int, hidden: int) -> None:
        super().__init__()
        self.l0, self.l1 = nn.Linear(obs_dim, hidden), nn.Linear(latent_dim + hidden, hidden)
        self.l2, self.l3 = nn.Linear(hidden, hidden), nn.Linear(hidden, action_dim)

    def forward(self, obs: Tensor, zs: Tensor) -> Tensor:
        a = avg_l1_norm(self.l0(obs))
        a = torch.cat([a, zs], 1)
        a = functional.relu(self.l1(a))
        a = functional.relu(self.l2(a))
        return torch.tanh(self.l3(a))


class Critic(nn.Module):
    """One value of states and actions."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int, hidden: int) -> None:
        super().__init__()
        self.q0, self.q1 = nn.Linear(obs_dim + action_dim, hidden), nn.Linear(2 * latent_dim + hidden, hidden)
        self.q2, self.q3 = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, obs: Tensor, action: Tensor, zsa: Tensor, zs: Tensor) -> Tensor:
        q = avg_l1_norm(self.q0(torch.cat([obs, action], 1)))
        q = torch.cat([q, zsa, zs], 1)
        q = functional.elu(self.q1(q))
        q = functional.elu(self.q2(q))
        return self.q3(q)


class CriticPair(nn.Module):
    """Two critics, one after the other."""

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int, hidden: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(Critic(obs_dim, action_dim, latent_dim, hidden) for _ in range(2))

    def forward(self, obs: Tensor, action: Tensor, zsa: Tensor, zs: Tensor) -> Tensor:
        return torch.cat([member(obs, action, zsa, zs) for member in self.members], 1)


class TD7Script:
    """The agent.

    Args:
        obs_dim, action_dim, latent_dim, hidden: sizes.
        lr: learning rate.
        discount: γ.
        target_update_rate: updates between two copies of the networks.
        redundancy: coefficients of decorrelation and variance hinge; None is plain TD7.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        latent_dim: int = 256,
        hidden: int = 256,
        lr: float = 3e-4,
        discount: float = 0.99,
        target_update_rate: int = 250,
        redundancy: tuple[float, float] | None = None,
    ) -> None:
        sizes = obs_dim, action_dim, latent_dim, hidden
        self.actor, self.critic, self.encoder = Actor(*sizes), CriticPair(*sizes), Encoder(*sizes)
        self.start(lr)
        self.discount, self.target_update_rate, self.redundancy = discount, target_update_rate, redundancy
        self.training_steps = 0
        self.max, self.min, self.max_target, self.min_target = -1e8, 1e8, 0.0, 0.0

    def start(self, lr: float) -> None:
        """Let targets and fixed copies equal the networks, and make new optimisers."""
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=lr)
        self.encoder_optimizer = torch.optim.Adam(self.encoder.parameters(), lr=lr)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.fixed_encoder, self.fixed_encoder_target = copy.deepcopy(self.encoder), copy.deepcopy(self.encoder)

    def train(self, batch: Mapping[str, Tensor], give_priorities: Callable[[Tensor], object]) -> None:
        """Make one update."""
        self.training_steps += 1
        state, action, next_state = batch["obs"], batch["action"], batch["next_obs"]
        reward, not_done = batch["reward"].unsqueeze(1), 1.0 - batch["terminated"].float().unsqueeze(1)

        with torch.no_grad():
            next_zs = self.encoder.zs(next_state)
        zs = self.encoder.zs(state)
        pred_zs = self.encoder.zsa(zs, action)
        encoder_loss = functional.mse_loss(pred_zs, next_zs)
        if self.redundancy is not None:
            encoder_loss = encoder_loss + redundancy_loss(zs, *self.redundancy)
        self.encoder_optimizer.zero_grad()
        encoder_loss.backward()
        self.encoder_optimizer.step()

        with torch.no_grad():
            fixed_target_zs = self.fixed_encoder_target.zs(next_state)
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            next_action = (self.actor_target(next_state, fixed_target_zs) + noise).clamp(-1, 1)
            fixed_target_zsa = self.fixed_encoder_target.zsa(fixed_target_zs, next_action)
            Q_target = self.critic_target(next_state, next_action, fixed_target_zsa, fixed_target_zs)
            Q_target = Q_target.min(1, keepdim=True)[0].clamp(self.min_target, self.max_target)
            Q_target = reward + not_done * self.discount * Q_target
            self.max = max(self.max, float(Q_target.max()))
            self.min = min(self.min, float(Q_target.min()))
            fixed_zs = self.fixed_encoder.zs(state)
            fixed_zsa = self.fixed_encoder.zsa(fixed_zs, action)
        Q = self.critic(state, action, fixed_zsa, fixed_zs)
        td_loss = (Q - Q_target).abs()
        critic_loss = torch.where(td_loss < 1, 0.5 * td_loss.pow(2), td_loss).sum(1).mean()
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        give_priorities(td_loss.detach().max(1)[0].clamp(min=1).pow(0.4))

        if self.training_steps % 2 == 0:
            actor = self.actor(state, fixed_zs)
            fixed_zsa = self.fixed_encoder.zsa(fixed_zs, actor)
            actor_loss = -self.critic(state, actor, fixed_zsa, fixed_zs).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()

        if self.training_steps % self.target_update_rate == 0:
            self.actor_target.load_state_dict(self.actor.state_dict())
            self.critic_target.load_state_dict(self.critic.state_dict())
            self.fixed_encoder_target.load_state_dict(self.fixed_encoder.state_dict())
            self.fixed_encoder.load_state_dict(self.encoder.state_dict())
            self.max_target, self.min_target = self.max, self.min


def redundancy_loss(z: Tensor, coef_rr: float, coef_var: float) -> Tensor:
    """The two terms of R2R2, written out."""
    batch, dim = z.shape
    second_moment = z.T @ z / (batch - 1)
    off_diagonal = second_moment[~torch.eye(dim, dtype=torch.bool)]
    std = torch.sqrt(z.var(0) + 1e-4)
    return coef_rr * off_diagonal.pow(2).mean() + coef_var * functional.relu(1 - std).mean()
