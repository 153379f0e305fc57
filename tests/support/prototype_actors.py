"""Small prototype actors, and a loss that trains them."""

import torch

from lightning_modules.protosac.prototype_actor import PrototypeActor

K, OBS, ACT = 6, 3, 2
MIXINGS = ["blend", "mixture"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed))


def build(seed: int = 0, **options) -> PrototypeActor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        defaults = {"obs_dim": OBS, "action_dim": ACT, "num_prototypes": K, "latent_dim": 4, "hidden": (16,)}
        actor = PrototypeActor(**{**defaults, **options})
        with torch.no_grad():
            actor.log_stds.uniform_(-1.5, 0.5)
    return actor


def grounded(**options) -> PrototypeActor:
    actor = build(**options)
    actor.initialize(randn(50, OBS), generator())
    return actor


def train_a_little(actor: PrototypeActor, steps: int = 5) -> torch.optim.Adam:
    optimizer = torch.optim.Adam(actor.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        actor_loss(actor, randn(32, OBS, seed=100 + step)).backward()
        optimizer.step()
    return optimizer


def actor_loss(actor: PrototypeActor, obs: torch.Tensor) -> torch.Tensor:
    """The SAC loss with a critic that likes one action a state, and both regularisers."""
    output = actor(obs)
    samples = output.weighted_samples(generator())
    q_BM = -(samples.actions - obs[:, None, :ACT].tanh()).square().sum(dim=-1)
    penalties = actor.regularizers(output.weights)
    return samples.expectation(0.1 * samples.log_prob - q_BM).mean() + 1e-3 * sum(penalties.values())
