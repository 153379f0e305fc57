"""TD7, alone or with redundancy reduction (R2R2), as a LightningModule."""

import copy
import math
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, distributed, nn

from lightning_modules.r2r2.assessment import PolicyAssessment
from lightning_modules.r2r2.redundancy import RedundancyReduction, SelfPredictiveLoss
from lightning_modules.r2r2.td7 import clipped_value_target, lap_huber, lap_priority, smoothed_action
from lightning_modules.r2r2.td7_networks import TD7Actor, TD7Critics, TD7Encoder
from lightning_modules.rl.networks import frozen
from lightning_modules.rl.off_policy import Experience, OffPolicyModule, Transitions


class PrioritisedExperience(Experience, Protocol):
    """What TD7 asks of its data besides.

    Attributes:
        prioritised: whether transitions are drawn in proportion to their priorities; ``sample`` then gives their ``index``.
        num_envs: environments that are stepped together.
        train_freq: vector steps of a tick.
    """

    prioritised: bool
    num_envs: int
    train_freq: int

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Give drawn transitions new priorities."""

    def reset_max_priority(self) -> None:
        """Let new transitions begin with the largest priority that there is now."""

    def ended_episodes(self) -> list[tuple[float, int]]:
        """Return the returns and lengths of the training episodes that ended in the last tick."""


class TD7Module(OffPolicyModule):
    r"""TD3 on embeddings of states and of state-action pairs, which predict the next state's embedding.

    The encoder φ and its latent model T are trained by

    .. math::
        \frac{1}{B d} \sum_{b,i} \bigl( T(\phi(s_b), a_b)_i - \mathrm{sg}(\phi(s'_b))_i \bigr)^2
            \; [+\; c_\text{RR} L_\text{RR} + c_\text{Var} L_\text{Var}]

    alone, with the ``regularizer`` in brackets where there is one (R2R2). Actor and critics read a copy of the encoder that stays
    fixed for ``target_update_rate`` updates.

    With ``use_checkpoints`` a policy is assessed for whole episodes before it is updated, as often as there were decisions
    meanwhile; the policy with the best worst return is kept and evaluated.

    Args:
        obs_dim: length of an observation; None takes it from the environment.
        action_dim: length of an action; None takes it from the environment.
        latent_dim: length of the embeddings.
        hidden: width of all hidden layers.
        regularizer: redundancy reduction of the embeddings; None is plain TD7.
        layer_norm: normalise hidden layers before their activation.
        lr: learning rate of Adam for all networks.
        discount: γ.
        exploration_noise: standard deviation of the noise on actions in training.
        target_noise: that of the noise on the target policy's actions.
        target_noise_clip: its largest absolute value.
        policy_freq: updates of encoder and critics between two of the actor.
        target_update_rate: updates between two copies of all networks to their targets and fixed versions.
        priority_exponent: power of the error in a transition's priority.
        min_priority: smallest priority, and the error at which the critics' loss turns from a square into a line.
        use_checkpoints: assess and keep policies; on one process, with one environment and ticks of one step.
        max_eps_when_checkpointing: episodes of an assessment from ``steps_before_checkpointing`` on; before, it is one.
        steps_before_checkpointing: learned decisions after which assessments become longer.
        reset_weight: factor of the record at that time.
        **options: those of :class:`OffPolicyModule`.

    Raises:
        ValueError: if the sizes are unknown, or the data do not fit; see ``setup``.

    Source: Fujimoto et al. 2023, "For SALE" (arXiv 2306.02451), and its published code; R2R2 (arXiv 2605.14026).
    """

    smoke: ClassVar[dict[str, Any]] = {"batch_size": 16, "utd": 1.0, "use_checkpoints": False}
    compiled = ("_target", "_embed", "objective", "policy_objective")

    value_low: Tensor
    value_high: Tensor
    target_low: Tensor
    target_high: Tensor

    def __init__(
        self,
        obs_dim: int | None = None,
        action_dim: int | None = None,
        latent_dim: int = 256,
        hidden: int = 256,
        regularizer: RedundancyReduction | None = None,
        layer_norm: bool = False,
        lr: float = 3e-4,
        discount: float = 0.99,
        exploration_noise: float = 0.1,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        policy_freq: int = 2,
        target_update_rate: int = 250,
        priority_exponent: float = 0.4,
        min_priority: float = 1.0,
        use_checkpoints: bool = True,
        max_eps_when_checkpointing: int = 20,
        steps_before_checkpointing: int = 750_000,
        reset_weight: float = 0.9,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.save_hyperparameters(ignore=["regularizer"])
        described = regularizer.specification() if regularizer else None
        self.save_hyperparameters({"regularizer": described, "_instantiator": "lightning.pytorch.cli.instantiate_module"})
        if obs_dim is None or action_dim is None:
            raise ValueError("TD7Module needs obs_dim and action_dim: give them, or a data module that knows its environment")
        self.lr, self.discount, self.exploration_noise = lr, discount, exploration_noise
        self.target_noise, self.target_noise_clip = target_noise, target_noise_clip
        self.policy_freq, self.target_update_rate = policy_freq, target_update_rate
        self.priority_exponent, self.min_priority = priority_exponent, min_priority
        self.use_checkpoints = use_checkpoints
        self.assessment = PolicyAssessment(max_eps_when_checkpointing, reset_weight)
        self.updates_before_checkpointing = math.ceil(self.ratio.utd * steps_before_checkpointing)
        self.updates_owed = 0

        sizes: dict[str, Any] = {"latent_dim": latent_dim, "hidden": hidden, "layer_norm": layer_norm}
        self.encoder = TD7Encoder(obs_dim, action_dim, **sizes)
        self.actor = TD7Actor(obs_dim, action_dim, **sizes)
        self.critics = TD7Critics(obs_dim, action_dim, **sizes)
        self.fixed_encoder, self.fixed_target_encoder = _copy(self.encoder), _copy(self.encoder)
        self.target_actor, self.target_critics = _copy(self.actor), _copy(self.critics)
        if use_checkpoints:
            self.checkpoint_actor, self.checkpoint_encoder = _copy(self.actor), _copy(self.encoder)
        self.self_prediction, self.regularizer = SelfPredictiveLoss(), regularizer
        starts = {"value_low": math.inf, "value_high": -math.inf, "target_low": 0.0, "target_high": 0.0}
        for name, start in starts.items():
            self.register_buffer(name, torch.tensor(start))
        self._critic_weights = list(self.critics.parameters())  # torch takes longer to collect parameters than to use them

    @property
    def experience(self) -> PrioritisedExperience:
        """The data module."""
        return cast(PrioritisedExperience, super().experience)

    def setup(self, stage: str) -> None:
        """See :class:`OffPolicyModule`.

        Raises:
            ValueError: if transitions are drawn uniformly, or if whole episodes cannot be assessed with these data.
        """
        super().setup(stage)
        if stage != "fit":
            return
        data = self.experience
        if not data.prioritised:
            raise ValueError("TD7 draws transitions by their priority: set data.prioritised=true")
        if self.use_checkpoints and (self.trainer.world_size, data.num_envs, data.train_freq) != (1, 1, 1):
            raise ValueError(
                "model.use_checkpoints assesses a policy by the episodes of one environment, one step at a time, but there are "
                f"{self.trainer.world_size} processes with data.num_envs={data.num_envs} and data.train_freq={data.train_freq}: "
                "set these to 1, or model.use_checkpoints=false"
            )

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self._share_value_range()  # checkpoints are made between ticks and hold one range for all ranks

    def updates_due(self, decisions: int) -> int:
        """Return the updates that follow now; with ``use_checkpoints`` none do before a policy is judged."""
        due = super().updates_due(decisions)
        if not self.use_checkpoints:
            return due
        self.updates_owed += due
        released = 0
        for episode_return, length in self.experience.ended_episodes():
            began = self.experience.env_steps - length
            if began < self.experience.learning_starts:
                continue  # chance acted in it
            verdict = self.assessment.judge(episode_return)
            if verdict == "best":
                _overwrite(self.checkpoint_actor, self.actor)
                _overwrite(self.checkpoint_encoder, self.fixed_encoder)
            if verdict != "undecided":
                released, self.updates_owed = self.updates_owed, 0
        return released

    def explore(self, obs: Tensor) -> Tensor:
        action = self.actor(obs, self.fixed_encoder.zs(obs))
        return (action + self.exploration_noise * torch.randn_like(action)).clamp(-1.0, 1.0)

    def exploit(self, obs: Tensor) -> Tensor:
        if self.use_checkpoints:
            return self.checkpoint_actor(obs, self.checkpoint_encoder.zs(obs))
        return self.actor(obs, self.fixed_encoder.zs(obs))

    def representation(self, obs: Tensor) -> Tensor:
        """Return the embeddings of states that are being trained, ``[B, d]``."""
        return self.encoder.zs(obs)

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        number = self.updates + 1
        if self.updates == self.updates_before_checkpointing:
            self.assessment.lengthen()
        optimizers: Any = self.optimizers()
        optimizer, actor_optimizer = optimizers
        target_B = self._target(batch)
        self._widen_value_range(target_B)
        zs_Bd, zsa_Bd = self._embed(batch)
        loss, error_JB, logs = self.objective(batch, target_B, zs_Bd, zsa_Bd)
        self._descend(optimizer, loss)
        priority_B = lap_priority(error_JB.detach(), self.priority_exponent, self.min_priority)
        self.experience.update_priorities(batch["index"], priority_B)
        if number % self.policy_freq == 0:
            with frozen(self._critic_weights):
                logs["actor_loss"] = self.policy_objective(batch["obs"], zs_Bd)
                self._descend(actor_optimizer, logs["actor_loss"])
        if number % self.target_update_rate == 0:
            self._synchronise()
        return {name: value.detach() for name, value in logs.items()}

    def objective(
        self, batch: Transitions, target_B: Tensor, zs_Bd: Tensor, zsa_Bd: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the sum of encoder's and critics' loss, which have no parameter in common, the critics' errors, and what to log.

        Args:
            batch: transitions.
            target_B: values that the critics should have.
            zs_Bd, zsa_Bd: embeddings by the fixed encoder, which the critics read.

        Returns:
            The loss, absolute errors ``[J, B]``, and its parts.
        """
        z_Bd = self.encoder.zs(batch["obs"])
        with torch.no_grad():
            next_z_Bd = self.encoder.zs(batch["next_obs"])
        prediction_loss = self.self_prediction(self.encoder.zsa(z_Bd, batch["action"]), next_z_Bd)
        error_JB = (self.critics(batch["obs"], batch["action"], zsa_Bd, zs_Bd) - target_B).abs()
        value_loss = lap_huber(error_JB, self.min_priority)
        loss = prediction_loss + value_loss
        logs = {"critic_loss": value_loss, "prediction_loss": prediction_loss}
        if self.regularizer is not None:
            redundancy, terms = self.regularizer(z_Bd)
            loss = loss + redundancy
            logs |= terms
        return loss, error_JB, logs

    def policy_objective(self, obs: Tensor, zs_Bd: Tensor) -> Tensor:
        """Return the actor's loss: minus the mean value of its actions by all critics."""
        action = self.actor(obs, zs_Bd)
        return -self.critics(obs, action, self.fixed_encoder.zsa(zs_Bd, action), zs_Bd).mean()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for encoder and critics, whose losses have no parameter in common, and another for the actor."""
        groups = ([*self.encoder.parameters(), *self.critics.parameters()], self.actor.parameters())
        return [torch.optim.Adam(group, lr=self.lr, fused=True) for group in groups]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["td7"] = {"assessment": self.assessment.state_dict(), "updates_owed": self.updates_owed}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.assessment.load_state_dict(checkpoint["td7"]["assessment"])
        self.updates_owed = checkpoint["td7"]["updates_owed"]

    @torch.no_grad()
    def _target(self, batch: Transitions) -> Tensor:
        """Values that the critics should have, ``[B]``."""
        obs = batch["next_obs"]
        zs_Bd = self.fixed_target_encoder.zs(obs)
        action = smoothed_action(self.target_actor(obs, zs_Bd), self.target_noise, self.target_noise_clip)
        value_JB = self.target_critics(obs, action, self.fixed_target_encoder.zsa(zs_Bd, action), zs_Bd)
        return clipped_value_target(
            batch["reward"], batch["terminated"], value_JB, self.target_low, self.target_high, self.discount
        )

    @torch.no_grad()
    def _embed(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Embeddings of states and of state-action pairs for actor and critics, each ``[B, d]``."""
        zs_Bd = self.fixed_encoder.zs(batch["obs"])
        return zs_Bd, self.fixed_encoder.zsa(zs_Bd, batch["action"])

    def _widen_value_range(self, target_B: Tensor) -> None:
        low, high = target_B.aminmax()
        torch.minimum(self.value_low, low, out=self.value_low)
        torch.maximum(self.value_high, high, out=self.value_high)

    def _share_value_range(self) -> None:
        """Let all ranks know the range of all ranks' targets."""
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(self.value_low, op=distributed.ReduceOp.MIN)
            distributed.all_reduce(self.value_high, op=distributed.ReduceOp.MAX)

    def _synchronise(self) -> None:
        """Copy what was trained to what stays fixed until the next time."""
        _overwrite(self.target_actor, self.actor)
        _overwrite(self.target_critics, self.critics)
        _overwrite(self.fixed_target_encoder, self.fixed_encoder)
        _overwrite(self.fixed_encoder, self.encoder)
        self.experience.reset_max_priority()
        self._share_value_range()
        self.target_low.copy_(self.value_low)
        self.target_high.copy_(self.value_high)

    def _descend(self, optimizer: Any, loss: Tensor) -> None:
        """Take one optimiser step down the gradient of a loss."""
        optimizer.zero_grad(set_to_none=True)
        self.manual_backward(loss)
        optimizer.step()


def _copy(network: nn.Module) -> Any:
    """Return a copy that is not trained."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def _overwrite(target: nn.Module, source: nn.Module) -> None:
    torch._foreach_copy_(list(target.parameters()), list(source.parameters()))
