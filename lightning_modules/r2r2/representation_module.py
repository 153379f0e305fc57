"""The representation bench: a self-predictive encoder on fixed transitions, without rewards and without a policy."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, cast

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from lightning_modules.r2r2.effective_rank import EffectiveRank
from lightning_modules.r2r2.redundancy import RedundancyReduction, SelfPredictiveLoss
from lightning_modules.r2r2.ridge import RelativeError, StandardisedProbe
from lightning_modules.r2r2.td7_networks import TD7Encoder

PROBE_SAMPLES = 10_000
"""Training transitions that the probes are fitted to."""

GRADIENT_SAMPLES = 256
"""Training transitions whose gradients are compared."""

Batch = Mapping[str, Tensor]


class KnownTransitions(Protocol):
    """All training transitions: ``obs`` and ``next_obs`` ``[N, n]``, ``action`` ``[N, m]`` and ``reward`` ``[N]``."""

    obs: Tensor
    action: Tensor
    next_obs: Tensor
    reward: Tensor


class TransitionData(Protocol):
    """What the bench asks of its data module besides batches."""

    train_set: KnownTransitions


class RepresentationModule(LightningModule):
    r"""TD7's encoder, trained on :math:`c_\text{spl} L_\text{SPL}` and a regulariser, and measured on held-out transitions.

    Batches are dictionaries with ``obs`` and ``next_obs`` ``[B, n]``, ``action`` ``[B, m]`` and ``reward`` ``[B]``. Logged for the
    features Z of held-out states, as ``val/...`` and ``test/...``:

    - ``spl``: the self-predictive loss, without its weight;
    - ``effective_rank``, ``effective_rank_centered``: of Z, and of Z minus its mean;
    - ``state_probe``, ``reward_probe``: relative squared error, 1 for the training mean, of ridge regressions that read the state
      (each dimension in its standard deviations) and the reward off Z. They were fitted to the first 10 000 training transitions.

    A validation also logs ``grad_share/spl``, ``rr`` and ``var``: norms of the gradients of the weighted terms with respect to
    the features of the first 256 training transitions, as shares of their sum; with them is seen which term acts at all.

    Args:
        obs_dim: length of an observation; None takes it from the data.
        action_dim: length of an action; None takes it from the data.
        latent_dim: number d of features.
        hidden: width of the encoder's hidden layers.
        layer_norm: normalise the hidden layers.
        regularizer: what is added to the self-predictive loss; None: nothing.
        coef_spl: weight of the self-predictive loss.
        lr: learning rate of Adam.

    Source: R2R2 (arXiv 2605.14026); the encoder: TD7 (arXiv 2306.02451).
    """

    smoke: ClassVar[dict[str, Any]] = {"latent_dim": 8, "hidden": 16}

    def __init__(
        self,
        obs_dim: int | None = None,
        action_dim: int | None = None,
        latent_dim: int = 256,
        hidden: int = 256,
        layer_norm: bool = False,
        regularizer: RedundancyReduction | None = None,
        coef_spl: float = 1.0,
        lr: float = 3e-4,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["regularizer"])
        described = regularizer.specification() if regularizer else None
        self.save_hyperparameters({"regularizer": described, "_instantiator": "lightning.pytorch.cli.instantiate_module"})
        if obs_dim is None or action_dim is None:
            raise ValueError("RepresentationModule needs obs_dim and action_dim: give them, or a data module that knows them")
        self.lr, self.coef_spl = lr, coef_spl
        self.encoder = TD7Encoder(obs_dim, action_dim, latent_dim, hidden, layer_norm)
        self.self_prediction = SelfPredictiveLoss()
        self.regularizer = regularizer
        self.measures = nn.ModuleDict(
            {
                "spl": MeanMetric(),
                "effective_rank": EffectiveRank(),
                "effective_rank_centered": EffectiveRank(center=True),
                "state_probe": RelativeError(),
                "reward_probe": RelativeError(),
            }
        )

    def representation(self, obs: Tensor) -> Tensor:
        """Return the features of states, ``[B, d]``."""
        return self.encoder.zs(obs)

    def forward(self, obs: Tensor) -> Tensor:
        return self.representation(obs)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        z_Bd = self.representation(batch["obs"])
        prediction_loss = self._prediction_loss(z_Bd, batch)
        loss, logs = self.coef_spl * prediction_loss, {"train/spl": prediction_loss.detach()}
        if self.regularizer:
            penalty, terms = self.regularizer(z_Bd)
            loss = loss + penalty
            logs |= {f"reg/{name}": value for name, value in terms.items()}
        self.log_dict({"train/loss": loss.detach(), **logs})
        return loss

    def on_validation_epoch_start(self) -> None:
        self._fit_probes()
        norms = self.gradient_norms(self._known(GRADIENT_SAMPLES))
        total = torch.stack(list(norms.values())).sum().clamp_min(torch.finfo(torch.float32).tiny)
        self.log_dict({f"grad_share/{name}": norm / total for name, norm in norms.items()}, sync_dist=True)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._measure(batch, "val")

    def on_test_epoch_start(self) -> None:
        self._fit_probes()

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self._measure(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.representation(batch["obs"])

    def gradient_norms(self, batch: Batch) -> dict[str, Tensor]:
        """Return the norm of each weighted term's gradient with respect to the batch's features."""
        with torch.inference_mode(False), torch.enable_grad():
            batch = {name: value.clone() for name, value in batch.items()}
            z_Bd = self.representation(batch["obs"]).detach().requires_grad_()
            terms = {"spl": self.coef_spl * self._prediction_loss(z_Bd, batch)}
            if self.regularizer:
                terms |= self.regularizer.terms(z_Bd)
            return {name: torch.autograd.grad(term, z_Bd, retain_graph=True)[0].norm() for name, term in terms.items()}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.encoder.parameters(), lr=self.lr)

    def _prediction_loss(self, z_Bd: Tensor, batch: Batch) -> Tensor:
        """Return the self-predictive loss; the encoder that learns makes its own targets."""
        with torch.no_grad():
            target_Bd = self.representation(batch["next_obs"])
        return self.self_prediction(self.encoder.zsa(z_Bd, batch["action"]), target_Bd)

    def _known(self, count: int) -> Batch:
        """Return the first training transitions, the same on all ranks."""
        known = cast(TransitionData, self.trainer.datamodule).train_set  # type: ignore[attr-defined]
        return {name: getattr(known, name)[:count].to(self.device) for name in ("obs", "action", "next_obs", "reward")}

    def _fit_probes(self) -> None:
        """Fit the probes to the training transitions, on every rank alike."""
        known = self._known(PROBE_SAMPLES)
        features = self.representation(known["obs"])
        self._probes = {name: StandardisedProbe(features, values) for name, values in _probe_targets(known).items()}

    def _measure(self, batch: Batch, stage: str) -> None:
        z_Bd = self.representation(batch["obs"])
        found: dict[str, tuple[Any, ...]] = {
            "spl": (self._prediction_loss(z_Bd, batch), len(z_Bd)),
            "effective_rank": (z_Bd,),
            "effective_rank_centered": (z_Bd,),
        }
        for name, values in _probe_targets(batch).items():
            found[name] = self._probes[name](z_Bd, values)
        for name, arguments in found.items():
            measure = cast(Metric, self.measures[name])
            measure.update(*arguments)
            self.log(f"{stage}/{name}", measure, batch_size=len(z_Bd))


def _probe_targets(batch: Batch) -> dict[str, Tensor]:
    """Return what each probe predicts, ``[B, k]``."""
    return {"state_probe": batch["obs"], "reward_probe": batch["reward"][:, None]}
