"""SimbaV2 as a LightningModule, alone or with self-predictive learning."""

import copy
import math
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor, nn

from lightning_modules.r2r2.categorical_value import categorical_target, cross_entropy, expected_value, pessimistic
from lightning_modules.r2r2.hypersphere import Embedder, hyper_weights, renormalise
from lightning_modules.r2r2.redundancy import RedundancyReduction, SelfPredictiveLoss, unit_norm_bound
from lightning_modules.r2r2.simba_networks import LatentModel, SimbaActor, SimbaCritics
from lightning_modules.rl.networks import frozen, move_towards
from lightning_modules.rl.off_policy import OffPolicyModule, Transitions
from lightning_modules.rl.sac import actor_loss

Latents = tuple[Tensor, ...]


class SimbaV2Module(OffPolicyModule):
    r"""Soft actor-critic on hyperspheres with categorical critics.

    With ``spl`` an encoder φ and a latent model T learn that :math:`T(\phi(s), a)` predicts :math:`\phi(s')`. Actor and critics
    see latents of their target copies beside the observation; no gradient of theirs reaches φ and T. The bins are made for rewards
    that the data module scales (``scale_rewards``) and the networks for normalised observations (``normalise_observations``).

    All learning rates fall linearly over the updates of the whole run.

    Args:
        obs_dim: length of an observation; None takes it from the environment.
        action_dim: length of an action; None takes it from the environment.
        actor_width: length of the actor's hidden unit vectors.
        actor_blocks: the actor's LERP blocks.
        critic_width: length of the critics' hidden unit vectors.
        critic_blocks: the critics' LERP blocks.
        num_critics: 1, or 2 whose more pessimistic one makes the targets; the authors take 2 where episodes can terminate.
        num_bins: bins of the critics' distributions.
        bound: the bins reach from ``-bound`` to ``bound``.
        spl: self-predictive learning.
        latent_dim: length of a latent.
        model_width: width of the latent model's hidden layers.
        regularizer: what else shapes the latents of current states.
        act_encoder: encoder whose latents the actor sees when it acts; the authors' actor learns from the target's and acts on
            the online one's.
        lr: learning rate of Adam for actor, critics and temperature at the first update.
        encoder_lr: the same for encoder and latent model.
        final_lr: learning rate of all at the last update.
        discount: γ; :func:`datamodules.rl.return_scaler.discount_of` gives the authors' choice.
        target_rate: share of the way that the targets move at each update.
        initial_alpha: temperature at the start.
        target_entropy: entropy that the temperature aims at; None is minus half the number of action dimensions.
        **options: those of :class:`OffPolicyModule`.

    Raises:
        ValueError: if ``num_critics`` is neither 1 nor 2, or there is a regularizer without latents.

    Source: SimbaV2 (arXiv 2502.15280); SPL and regularizer: R2R2 (arXiv 2605.14026); both with their code.
    """

    smoke: ClassVar[dict[str, Any]] = {
        "batch_size": 16,
        "actor_width": 8,
        "critic_width": 16,
        "latent_dim": 8,
        "model_width": 16,
    }
    compiled = ("_target", "representation_objective", "policy_objective", "value_objective")

    actor: SimbaActor
    critics: SimbaCritics
    target_critics: Any
    encoder: Any
    model: Any
    target_encoder: Any
    target_model: Any
    bins: Tensor
    total_updates: float

    def __init__(
        self,
        obs_dim: int | None = None,
        action_dim: int | None = None,
        actor_width: int = 128,
        actor_blocks: int = 1,
        critic_width: int = 512,
        critic_blocks: int = 2,
        num_critics: Literal[1, 2] = 1,
        num_bins: int = 101,
        bound: float = 5.0,
        spl: bool = False,
        latent_dim: int = 128,
        model_width: int = 256,
        regularizer: RedundancyReduction | None = None,
        act_encoder: Literal["online", "target"] = "online",
        lr: float = 1e-4,
        encoder_lr: float = 3e-4,
        final_lr: float = 5e-5,
        discount: float = 0.99,
        target_rate: float = 0.005,
        initial_alpha: float = 0.01,
        target_entropy: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.save_hyperparameters(ignore=["regularizer"])
        described = regularizer.specification() if regularizer else None
        self.save_hyperparameters({"regularizer": described, "_instantiator": "lightning.pytorch.cli.instantiate_module"})
        if obs_dim is None or action_dim is None:
            raise ValueError("SimbaV2Module needs obs_dim and action_dim: give them, or a data module that knows its environment")
        if num_critics not in (1, 2):
            raise ValueError(f"num_critics must be 1 or 2, got {num_critics}")
        if regularizer is not None and not spl:
            raise ValueError("a regularizer shapes the latents of self-predictive learning: set spl=true, or leave it out")
        self.spl, self.act_encoder = spl, act_encoder
        self.lr, self.encoder_lr, self.final_lr = lr, encoder_lr, final_lr
        self.discount, self.target_rate = discount, target_rate
        self.target_entropy = -0.5 * action_dim if target_entropy is None else target_entropy
        self.register_buffer("bins", torch.linspace(-bound, bound, num_bins))
        seen_dim = latent_dim if spl else 0
        self.actor = SimbaActor(obs_dim, action_dim, actor_width, actor_blocks, seen_dim)
        self.critics = SimbaCritics(obs_dim, action_dim, critic_width, critic_blocks, num_bins, num_critics, seen_dim)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial_alpha)))
        self.encoder = Embedder(obs_dim, latent_dim) if spl else None
        self.model = LatentModel(latent_dim, action_dim, model_width) if spl else None
        self.target_critics, self.target_encoder, self.target_model = (
            copy.deepcopy(network).requires_grad_(False) if network is not None else None
            for network in (self.critics, self.encoder, self.model)
        )
        self.regularizer, self.self_prediction = regularizer, SelfPredictiveLoss()
        # torch takes longer to collect parameters than to use them
        latent_networks = [self.encoder, self.model] if spl else []
        self._latent_weights = [weight for network in latent_networks for weight in network.parameters()]
        self._frozen_for_actor = [*self.critics.parameters(), *(self.model.parameters() if spl else ())]
        self._policy_rows, self._critic_rows = hyper_weights(self.actor, *latent_networks), hyper_weights(self.critics)
        targets = [self.target_critics, *([self.target_encoder, self.target_model] if spl else [])]
        self._target_weights = [weight for network in targets for weight in network.parameters()]
        self._online_weights = [*self.critics.parameters(), *self._latent_weights]

    @property
    def alpha(self) -> Tensor:
        """The temperature, without gradient."""
        return self.log_alpha.detach().exp()

    def setup(self, stage: str) -> None:
        """Count the updates of the run, and say so if its decorrelation can hardly be felt."""
        super().setup(stage)
        if stage != "fit":
            return
        self.total_updates = float(self.ratio.utd * self.experience.total_env_steps / self.trainer.world_size)
        if self.regularizer is not None and self.regularizer.latent_scale == 1:
            bound = unit_norm_bound(self.batch_size, self.encoder.dense.weight.shape[0])
            rank_zero_info(
                f"latents of length 1 keep L_RR below {bound:.1e}, where it is hardly felt; that is the authors' setting, "
                "regularizer.latent_scale=sqrt_dim is another"
            )

    def explore(self, obs: Tensor) -> Tensor:
        return self.actor.sample(obs, *self._acting_latents(obs))[0]

    def exploit(self, obs: Tensor) -> Tensor:
        return self.actor.mode(obs, *self._acting_latents(obs))

    def representation(self, obs: Tensor) -> Tensor:
        """Return the online latents of observations ``[B, n]``, ``[B, d]``.

        Raises:
            RuntimeError: without self-predictive learning.
        """
        if not self.spl:
            raise RuntimeError("SimbaV2Module has no latents without self-predictive learning: set spl=true")
        return self.encoder(obs)

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Make one update.

        In the authors' order the encoder comes first and the actor, which uses the latent model as it was before, second. Neither
        sees what the other changes, so one backward pass and one optimiser serve both.
        """
        optimizers: Any = self.optimizers()
        policy_optimizer, critic_optimizer = optimizers
        self._set_learning_rates(policy_optimizer, critic_optimizer)
        alpha = self.alpha
        latents, next_latents = self._target_latents(batch["obs"]), self._target_latents(batch["next_obs"])
        with frozen(self._frozen_for_actor):
            policy_loss, log_prob_B = self.policy_objective(batch["obs"], alpha, latents)
        entropy = -log_prob_B.detach().mean()
        loss, logs = policy_loss + self.log_alpha.exp() * (entropy - self.target_entropy), dict[str, Tensor]()
        if self.spl:
            representation_loss, logs = self.representation_objective(batch)
            loss = loss + representation_loss
        self._descend(policy_optimizer, loss, self._policy_rows)
        value_loss = self.value_objective(batch, latents, self._target(batch, self.alpha, next_latents))
        self._descend(critic_optimizer, value_loss, self._critic_rows)
        move_towards(self._target_weights, self._online_weights, self.target_rate)
        losses = {"critic_loss": value_loss, "actor_loss": policy_loss}
        found = {**losses, "alpha": alpha, "entropy": entropy, **logs}
        return {name: value.detach() for name, value in found.items()}

    def representation_objective(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of encoder and latent model, and what to log."""
        z_Bd = self.encoder(batch["obs"])
        with torch.no_grad():
            next_z_Bd = self.encoder(batch["next_obs"])
        loss = self.self_prediction(self.model(z_Bd, batch["action"]), next_z_Bd)
        logs = {"spl_loss": loss}
        if self.regularizer is not None:
            regularization, terms = self.regularizer(z_Bd)
            loss = loss + regularization
            logs |= {f"reg/{name}": value for name, value in terms.items()}
        return loss, logs

    def policy_objective(self, obs: Tensor, alpha: Tensor, latents: Latents) -> tuple[Tensor, Tensor]:
        """Return the actor's loss and the log-densities for the temperature, ``[B]``."""
        action, log_prob_B = self.actor.sample(obs, *latents)
        logits_JBK = self.critics(obs, action, *self._with_next(self.model, latents, action))
        return actor_loss(expected_value(logits_JBK, self.bins), log_prob_B, alpha), log_prob_B

    def value_objective(self, batch: Transitions, latents: Latents, target_BK: Tensor) -> Tensor:
        """Return the critics' loss."""
        seen = self._with_next(self.target_model, latents, batch["action"])
        return cross_entropy(self.critics(batch["obs"], batch["action"], *seen), target_BK)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for all but the critics, for their losses have no parameter in common, and another for the critics."""
        policy = {"params": [*self.actor.parameters(), self.log_alpha], "lr": self.lr, "first_lr": self.lr}
        latent = {"params": self._latent_weights, "lr": self.encoder_lr, "first_lr": self.encoder_lr}
        critics = {"params": list(self.critics.parameters()), "lr": self.lr, "first_lr": self.lr}
        return [torch.optim.Adam(groups, fused=True) for groups in ([policy, *([latent] if self.spl else [])], [critics])]

    @torch.no_grad()
    def _target(self, batch: Transitions, alpha: Tensor, next_latents: Latents) -> Tensor:
        """Distributions that the critics should have, ``[B, K]``."""
        next_obs = batch["next_obs"]
        action, log_prob_B = self.actor.sample(next_obs, *next_latents)
        logits_JBK = self.target_critics(next_obs, action, *self._with_next(self.target_model, next_latents, action))
        probabilities_BK = pessimistic(logits_JBK, self.bins)
        cost_B = alpha * log_prob_B
        return categorical_target(probabilities_BK, batch["reward"], batch["terminated"], cost_B, self.discount, self.bins)

    @torch.no_grad()
    def _target_latents(self, obs: Tensor) -> Latents:
        """Latents that actor and critics learn from, none without self-predictive learning."""
        return (self.target_encoder(obs),) if self.spl else ()

    def _acting_latents(self, obs: Tensor) -> Latents:
        if not self.spl:
            return ()
        return ((self.encoder if self.act_encoder == "online" else self.target_encoder)(obs),)

    @staticmethod
    def _with_next(model: Any, latents: Latents, action: Tensor) -> Latents:
        """Add the predicted next latents to those of the current states."""
        return (*latents, model(*latents, action)) if latents else ()

    def _set_learning_rates(self, *optimizers: Any) -> None:
        progress = min(self.updates / self.total_updates, 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["first_lr"] + progress * (self.final_lr - group["first_lr"])

    def _descend(self, optimizer: Any, loss: Tensor, rows: list[nn.Parameter]) -> None:
        """Take one optimiser step down the gradient of a loss, and bring the rows of these weights back to length 1."""
        optimizer.zero_grad(set_to_none=True)
        self.manual_backward(loss)
        optimizer.step()
        renormalise(rows)
