"""What the SAC of stable-baselines3 reaches with the settings, environments and episodes of a config of ours."""

from collections.abc import Mapping
from typing import Any

import torch
import yaml
from torch import Tensor

from benchmarks.experiments import REPOSITORY


def peer_return(task: str, seed: int) -> Mapping[str, float]:
    """Train as ``configs/sac/<task>.yaml`` says and return what the best of the evaluated policies earns in the test.

    Args:
        task: name of the config.
        seed: seed of networks, environments and episodes, as in a run of ours.

    Returns:
        ``test/return_mean``, and every evaluation as ``val/return_mean_at_<step>``.
    """
    from gymnasium.wrappers import TransformReward
    from stable_baselines3 import SAC

    from datamodules import RLDataModule
    from datamodules.rl.environments import make_env, training_seed

    config = yaml.safe_load((REPOSITORY / "configs" / "sac" / f"{task}.yaml").read_text())
    ours, data_options = config["model"]["init_args"], config["data"]["init_args"]
    data = RLDataModule(**data_options, seed=seed)
    torch.set_num_threads(1)
    scale = ours.get("reward_scale", 1.0)
    agent = SAC(
        "MlpPolicy",
        TransformReward(make_env(data.env, seed=training_seed(seed, 0, 0)), lambda reward: scale * reward),
        learning_rate=ours.get("lr", 3e-4),
        buffer_size=data.replay_capacity,
        learning_starts=data.learning_starts,
        batch_size=ours.get("batch_size", 256),
        train_freq=data.train_freq,
        gradient_steps=data.train_freq,
        policy_kwargs={"net_arch": list(ours.get("hidden", (256, 256)))},
        seed=seed,
        device="cpu",
    )

    def act(obs: Tensor) -> Tensor:
        return torch.from_numpy(agent.predict(obs.numpy(), deterministic=True)[0])

    found: dict[str, float] = {}
    best, best_weights = -float("inf"), dict[str, Any]()
    for step in range(data.eval_every_env_steps, data.total_env_steps + 1, data.eval_every_env_steps):
        agent.learn(data.eval_every_env_steps, reset_num_timesteps=False)
        found[f"val/return_mean_at_{step}"] = value = data.evaluate(act, data.val_dataloader().numbers).returns.mean().item()
        if value > best:
            best, best_weights = value, {name: weight.clone() for name, weight in agent.policy.state_dict().items()}
    agent.policy.load_state_dict(best_weights)
    found["test/return_mean"] = data.evaluate(act, data.test_dataloader().numbers).returns.mean().item()
    data.teardown("test")
    return found
