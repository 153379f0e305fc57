"""A trained agent outside the trainer: from a checkpoint to actions, and to reasons where it has them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_modules.rl.off_policy import OffPolicyModule

EPSILON = 1e-8  # that of the data module's normaliser


class PolicyAgent:
    """A trained agent that acts without randomness, as it does in an evaluation.

    Prototypes are set to the embeddings of the states that they stand for, so that what acts is what can be explained::

        agent = PolicyAgent.from_checkpoint("runs/protosac/pendulum/0/checkpoints/last.ckpt")
        env = gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))
        obs, _ = env.reset(seed=0)
        ended = False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
            ended = terminated or truncated
        print(agent.explain(obs))

    Args:
        module: a trained module; it is put in evaluation mode.
        mean, std: what the module was trained to have subtracted from its observations, and then to have them divided by, ``[n]``.
    """

    def __init__(self, module: OffPolicyModule, mean: Tensor | float = 0.0, std: Tensor | float = 1.0) -> None:
        self.module = module.eval()
        self.mean, self.std = (torch.as_tensor(value, dtype=torch.float32, device=module.device) for value in (mean, std))
        actor: Any = module.actor
        if getattr(actor, "grounded", False):
            actor.sync()

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: torch.device | str = "cpu") -> PolicyAgent:
        """Read a checkpoint that a training run wrote.

        Args:
            path: the file.
            device: where the networks compute.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it does not say which agent it holds, or holds none.
        """
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        class_path = checkpoint.get("hyper_parameters", {}).get("_class_path")
        if class_path is None:
            raise ValueError(f"{path} does not name its module's class: use PolicyAgent(YourModule.load_from_checkpoint(path))")
        package, _, name = class_path.rpartition(".")
        module_class = getattr(sys.modules.get(package), name, None)  # a file does not decide what is imported
        if module_class is None:
            raise ValueError(f"{path} holds a {class_path}, which is not known here: import {package} first")
        if not issubclass(module_class, OffPolicyModule):
            raise ValueError(f"{path} holds a {class_path}, which does not act in an environment")
        module = module_class.load_from_checkpoint(path, map_location=device, weights_only=True)
        for part in checkpoint.values():
            if isinstance(part, dict) and "normaliser" in part:
                return cls(module, *_mean_and_std(part["normaliser"]))
        return cls(module)

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions for one observation ``[n]`` or several ``[B, n]``, float32 ``[m]`` or ``[B, m]`` in [-1, 1].

        Raises:
            ValueError: if the shape does not fit or an observation is not finite.
        """
        states = self._states(obs)
        actions = self.module.exploit(states.view(-1, states.shape[-1]))
        return actions.view(*states.shape[:-1], -1).cpu().numpy()

    def explain(self, obs: np.ndarray, top: int | None = 3) -> list[Any]:
        """Say which prototypes decide for one observation ``[n]``, heaviest first; see ``PrototypeActor.explain``.

        The prototypes' states are in the units of the environment.

        Raises:
            TypeError: if the agent has no prototypes.
            ValueError: if the observation does not fit.
        """
        actor: Any = self.module.actor
        if not hasattr(actor, "explain"):
            raise TypeError(f"{type(self.module).__name__} cannot explain what it does: train a ProtoSACModule")
        return [
            replace(explanation, prototype_state=explanation.prototype_state * self.std + self.mean)
            for explanation in actor.explain(self._states(obs), top)
        ]

    def _states(self, obs: np.ndarray) -> Tensor:
        states = torch.as_tensor(np.asarray(obs, dtype=np.float32), device=self.module.device)
        obs_dim = self.module.hparams["obs_dim"]
        if states.ndim not in (1, 2) or states.shape[-1] != obs_dim:
            raise ValueError(f"the agent observes [{obs_dim}] or [B, {obs_dim}], got {list(states.shape)}")
        if not states.isfinite().all():
            raise ValueError("an observation is not finite")
        return (states - self.mean) / self.std


def _mean_and_std(normaliser: dict[str, Any]) -> tuple[Tensor, Tensor] | tuple[float, float]:
    """Read a saved running mean and variance, which changes nothing before data."""
    if not normaliser["count"]:
        return 0.0, 1.0
    return normaliser["mean"], (normaliser["m2"] / normaliser["count"] + EPSILON).sqrt()
