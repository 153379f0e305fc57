"""Policies made of a few prototypes after the fact, by imitating a trained SAC actor."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MeanSquaredError

from lightning_modules.protosac.cluster_policy import ClusterPolicy
from lightning_modules.protosac.pwnet import PWNet, SharedPWNet
from lightning_modules.protosac.teacher import load_teacher
from lightning_modules.rl.episode_statistics import EpisodeStatistics
from lightning_modules.rl.off_policy import Act, Outcomes

DECAY = 0.95


class Demonstrated(Protocol):
    """All states of the training episodes, ``[states, obs]``, with the teacher's actions, ``[states, m]``."""

    obs: Tensor
    action: Tensor


class Demonstrations(Protocol):
    """What a student asks of its data module."""

    train_set: Demonstrated

    def evaluate(self, act: Act, episodes: Tensor) -> Outcomes:
        """Play the evaluation episodes of these numbers."""


class DistillationModule(LightningModule, ABC):
    """A student of a frozen SAC actor.

    The data module plays the teacher (:meth:`explore` chooses which states are visited, :meth:`demonstrate` says what is to be
    done there), and hands out batches ``obs [B, n]``, ``action [B, m]``; a test plays the student.

    Args:
        teacher: a checkpoint of SAC, or a folder of its runs (``runs/sac/pendulum``), of which the newest finished one counts;
            ``random``: an untrained actor, to try the machinery.
        obs_dim: length of an observation; None takes it from the environment.
        action_dim: length of an action; None takes it from the environment.
        hidden: widths of the hidden layers of an untrained teacher.
    """

    smoke: ClassVar[dict[str, Any]] = {"teacher": "random"}

    def __init__(
        self, teacher: str, obs_dim: int | None = None, action_dim: int | None = None, hidden: Sequence[int] = (256, 256)
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if obs_dim is None or action_dim is None:
            raise ValueError(f"{type(self).__name__} needs obs_dim and action_dim: give them, or a data module that knows them")
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.teacher = load_teacher(teacher, obs_dim, action_dim, hidden)
        self.action_error = MeanSquaredError()
        self.episode_statistics = EpisodeStatistics()

    @abstractmethod
    def forward(self, obs: Tensor) -> Tensor:
        """Return the student's actions, ``[B, m]``."""

    def explore(self, obs: Tensor) -> Tensor:
        """Return actions as the teacher drew them in training, ``[n, m]``."""
        return self.teacher.sample(obs)[0]

    def demonstrate(self, obs: Tensor) -> Tensor:
        """Return the teacher's deterministic actions, ``[n, m]``."""
        return self.teacher.mode(obs)

    def validation_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        self.action_error.update(self(batch["obs"]), batch["action"])
        self.log("val/action_error", self.action_error, batch_size=len(batch["obs"]))

    def test_step(self, episodes: Tensor, batch_idx: int) -> None:
        self.episode_statistics.update(*self._demonstrations.evaluate(self, episodes))

    def on_test_epoch_end(self) -> None:
        found = self.episode_statistics.compute()
        self.episode_statistics.reset()
        self.log_dict({f"test/{name}": value for name, value in found.items()}, sync_dist=True)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on with the demonstrations of another teacher: a newer run of it may have finished meanwhile."""
        if self._trainer is None or self.trainer.state.fn != "fit":
            return
        saved = checkpoint["state_dict"]
        if not all(torch.equal(value.cpu(), saved[f"teacher.{name}"].cpu()) for name, value in self.teacher.state_dict().items()):
            raise ValueError(
                f"teacher: {self.hparams['teacher']} is no longer the one that this run began with; "
                "give the folder of that run with --model.init_args.teacher"
            )

    @property
    def _demonstrations(self) -> Demonstrations:
        return cast(Demonstrations, self.trainer.datamodule)  # type: ignore[attr-defined]


class PWNetModule(DistillationModule):
    r"""A prototype wrapper around the teacher's last hidden layer, trained on :math:`\lVert a - a_\text{teacher} \rVert^2`.

    Args:
        teacher: see :class:`DistillationModule`.
        num_prototypes: number K of prototypes.
        width: of the transformation of each prototype.
        shared: whether the action dimensions choose from one pool of prototypes, see :class:`SharedPWNet`.
        slots: of each action dimension, where shared.
        lr: learning rate of Adam at the start; it falls by 5 % an epoch.
        hidden: widths of the hidden layers of an untrained teacher.

    Source: PW-Net, Kenny et al. 2023; Shared-PW-Net, Borzillo et al. 2023.
    """

    def __init__(
        self,
        teacher: str,
        num_prototypes: int = 30,
        width: int = 50,
        shared: bool = False,
        slots: int = 10,
        lr: float = 1e-2,
        hidden: Sequence[int] = (256, 256),
        obs_dim: int | None = None,
        action_dim: int | None = None,
    ) -> None:
        super().__init__(teacher, obs_dim, action_dim, hidden)
        self.lr = lr
        latent_dim = cast(nn.Linear, self.teacher.network[-1]).in_features
        sizes = (latent_dim, self.action_dim, num_prototypes)
        self.network = SharedPWNet(*sizes, slots, width) if shared else PWNet(*sizes, width)

    def forward(self, obs: Tensor) -> Tensor:
        return self.network(self.teacher.network[:-1](obs))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if isinstance(self.network, SharedPWNet):
            self.network.anneal(self.trainer.global_step / self.trainer.estimated_stepping_batches)

    def training_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        loss = functional.mse_loss(self(batch["obs"]), batch["action"])
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.network.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)]


class KMeansPolicyModule(DistillationModule):
    """The plainest prototypes: clusters of the visited states, each with the mean of the teacher's actions there.

    Nothing is learned by gradients: the clusters are there when training begins, and its only epoch measures them.

    Args:
        teacher: see :class:`DistillationModule`.
        num_clusters: number K of clusters.
        seed: seed of k-means.
        hidden: widths of the hidden layers of an untrained teacher.
    """

    def __init__(
        self,
        teacher: str,
        num_clusters: int = 30,
        seed: int = 0,
        hidden: Sequence[int] = (256, 256),
        obs_dim: int | None = None,
        action_dim: int | None = None,
    ) -> None:
        super().__init__(teacher, obs_dim, action_dim, hidden)
        self.seed = seed
        self.policy = ClusterPolicy(self.obs_dim, self.action_dim, num_clusters)

    def trainer_defaults(self) -> dict[str, Any]:
        return {"max_epochs": 1}

    def setup(self, stage: str) -> None:
        """Tell Lightning that the missing gradients are meant.

        Raises:
            ValueError: if there are several processes.
        """
        if self.trainer.world_size > 1:
            raise ValueError("KMeansPolicyModule has no gradients to share: run it with trainer.devices=1")
        for returned in ("configure_optimizers` returned `None`", "training_step` returned `None`"):
            warnings.filterwarnings("ignore", message=f".*{returned}")

    def forward(self, obs: Tensor) -> Tensor:
        return self.policy(obs)

    def on_train_start(self) -> None:
        known = self._demonstrations.train_set
        self.policy.fit(known.obs, known.action, self.seed)

    def training_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        self.log("train/loss", functional.mse_loss(self(batch["obs"]), batch["action"]))

    def configure_optimizers(self) -> None:
        return None
