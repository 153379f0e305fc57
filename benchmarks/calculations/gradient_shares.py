"""How strongly each term of the representation loss pulls at the latents of SimbaV2-SPL."""

from collections.abc import Mapping
from typing import Any

ENV, TRANSITIONS, BATCH, UPDATES = "gym:HalfCheetah-v5", 2_000, 256, 200
LATENT_SCALES: dict[str, Any] = {"latent_scale_1": 1.0, "latent_scale_sqrt_dim": "sqrt_dim"}


def gradient_shares(variant: str, seed: int) -> Mapping[str, float]:
    """Return norms of gradients with respect to Z, after some updates of encoder and latent model on random transitions.

    The networks have the size of the paper, d = 128.

    Args:
        variant: a key of ``LATENT_SCALES``: what Z is multiplied by inside the redundancy reduction.
        seed: seed of networks, environment and batches.

    Returns:
        ``spl``, ``rr`` and ``var``: norms of the gradients of the self-predictive loss and of the two weighted terms;
        ``rr_to_spl`` and ``var_to_spl``: their ratios.
    """
    import torch

    from lightning_modules.r2r2.hypersphere import hyper_weights, renormalise
    from lightning_modules.r2r2.redundancy import RedundancyReduction
    from lightning_modules.r2r2.simba_module import SimbaV2Module

    torch.manual_seed(seed)
    data = random_transitions(seed)
    regularizer = RedundancyReduction(latent_scale=LATENT_SCALES[variant])
    module = SimbaV2Module(**data.model_arguments(), spl=True, regularizer=regularizer, critic_width=8, critic_blocks=1)
    optimizer = torch.optim.Adam([*module.encoder.parameters(), *module.model.parameters()], lr=module.encoder_lr)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        module.representation_objective(data.sample(BATCH, module.device))[0].backward()
        optimizer.step()
        renormalise(hyper_weights(module.encoder))
    batch = data.sample(BATCH, module.device)
    z_Bd = module.encoder(batch["obs"])
    spl = module.self_prediction(module.model(z_Bd, batch["action"]), module.encoder(batch["next_obs"]))
    terms = {"spl": spl, **regularizer.terms(z_Bd)}
    norms = {name: float(torch.autograd.grad(term, z_Bd, retain_graph=True)[0].norm()) for name, term in terms.items()}
    data.teardown("fit")
    return {**norms, **{f"{name}_to_spl": norms[name] / norms["spl"] for name in ("rr", "var")}}


def random_transitions(seed: int) -> Any:
    """Return a data module whose replay holds transitions of random actions, observations normalised."""
    import torch

    from datamodules import RLDataModule

    data = RLDataModule(
        ENV,
        total_env_steps=TRANSITIONS,
        eval_every_env_steps=TRANSITIONS,
        learning_starts=TRANSITIONS,
        replay_capacity=TRANSITIONS,
        normalise_observations=True,
        seed=seed,
    )
    data.setup("fit")
    for _ in range(TRANSITIONS):
        data.collect(torch.zeros_like)
    return data
