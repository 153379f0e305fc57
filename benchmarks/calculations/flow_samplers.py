"""Samplers of discrete flows with a perfect network: exact laws where there are few states, likelihoods elsewhere."""

from collections.abc import Mapping
from functools import cache
from typing import Any

CALLS = (2, 4, 8, 16, 32, 64)
BLOCK_DELTA, LETTER_DELTA = 0.05, 0.02
COUNTED, SAMPLES = 4_000, 2_000
LETTER_CALLS = (4, 8, 16, 32, 64)
TRUTH = "truth"


def block_errors(variant: str, seed: int) -> Mapping[str, float]:
    """Return how far the laws of a sampler are from the truth on the paper's blocks of three tokens.

    Args:
        variant: ``<source>_<sampler>``.
        seed: of no consequence: laws are exact, and costs are counted with the same random numbers.

    Returns:
        For each number n of calls ``tv_at_n`` and ``kl_at_n``, total variation and divergence from the true law at the end of the
        grid; ``data_tv_at_n``, total variation from the data after masks are filled; and ``evals_at_n``, the mean number of
        evaluations of a sample.
    """
    return _block_errors(variant)


@cache
def _block_errors(variant: str) -> Mapping[str, float]:
    import torch

    from datamodules import MarkovBlocksDataModule
    from lightning_modules.dfm.exact_law import ExactLaw, kl, tv
    from lightning_modules.dfm.judging import block_law
    from lightning_modules.dfm.oracles import TableOracle
    from lightning_modules.dfm.solvers.time_grid import make_time_grid

    source, path, each = _setting(variant, tokens=8)
    chain = MarkovBlocksDataModule().chain
    oracle = TableOracle(block_law(chain).view([8] * chain.length), source, path.scheduler)
    laws, data = ExactLaw(oracle, source, path), oracle.marginal(1.0).flatten()
    found: dict[str, float] = {}
    for calls in CALLS:
        grid = make_time_grid(path.scheduler, each.steps_within(calls), delta=BLOCK_DELTA)
        end = grid.t[-1].item()
        law, truth = laws.propagate(each.solver, grid, **each.options), oracle.marginal(end).flatten()
        drawn = each.sample(oracle, path, source, chain.length, torch.arange(COUNTED), calls, BLOCK_DELTA)
        last_draw = source.mask_id is not None
        found |= {
            f"tv_at_{calls}": tv(truth, law),
            f"kl_at_{calls}": kl(truth, law),
            f"data_tv_at_{calls}": tv(data, laws.finish(law, end)),
            f"evals_at_{calls}": drawn.evals_per_sample - last_draw,
        }
    return found


def letter_likelihoods(variant: str, seed: int) -> Mapping[str, float]:
    """Return how improbable samples of 32 letters are, made with the true posterior of a chain.

    Args:
        variant: ``<source>_<sampler>``, or ``<source>_truth`` for draws of the true law at the end of the grid, which tell what the
            early end costs.
        seed: seed of the samples.

    Returns:
        For each number n of calls ``excess_at_n``, the mean negative log-likelihood of a letter in excess of the entropy, in nats;
        and ``evals_at_n``, the mean number of evaluations of a sample, without the last draw of masks.
    """
    import numpy as np
    import torch

    from datamodules import BigramOracleDataModule
    from lightning_modules.dfm.metrics import chain_log_likelihood
    from lightning_modules.dfm.oracles import MarkovOracle

    chain = BigramOracleDataModule().chain
    initial_S, transition_SS = torch.from_numpy(chain.initial_S), torch.from_numpy(chain.transition_SS)
    source, path, each = _setting(variant, chain.vocab_size)
    oracle = MarkovOracle(initial_S, transition_SS, source, path.scheduler)
    seed_n = torch.arange(SAMPLES) + SAMPLES * seed
    last_draw = source.mask_id is not None
    found: dict[str, float] = {}

    def excess(tokens: Any) -> float:
        likelihood = chain_log_likelihood(tokens, initial_S, transition_SS, chain.length).mean().item()
        return -(likelihood + chain.entropy) / chain.length

    if each is None:
        end = path.scheduler.kappa_inverse(1 - LETTER_DELTA)
        data = torch.from_numpy(chain.sample(SAMPLES, np.random.default_rng(seed)))
        noise = source.init(data.shape, seeds=seed_n)
        state = path.sample(noise, data, end.expand(SAMPLES), seeds=seed_n).x_t
        if last_draw:
            p = oracle(x=state, t=end.expand(SAMPLES))
            drawn = torch.multinomial(p.flatten(0, 1), 1, generator=torch.Generator().manual_seed(seed)).view_as(state)
            state = torch.where(state == source.mask_id, drawn, state)
        return {f"excess_at_{calls}": excess(state) for calls in LETTER_CALLS}
    for calls in LETTER_CALLS:
        drawn = each.sample(oracle, path, source, chain.length, seed_n, calls, LETTER_DELTA)
        found |= {f"excess_at_{calls}": excess(drawn.x), f"evals_at_{calls}": drawn.evals_per_sample - last_draw}
    return found


def _setting(variant: str, tokens: int) -> Any:
    """Return source, path and sampler of a variant; the truth has no sampler."""
    from lightning_modules.dfm.comparison import sampler
    from lightning_modules.dfm.path import DiscretePath
    from lightning_modules.dfm.schedulers import PolynomialScheduler
    from lightning_modules.dfm.sources import MaskSource, UniformSource

    kind, _, name = variant.partition("_")
    source = MaskSource(tokens) if kind == "mask" else UniformSource(tokens)
    return source, DiscretePath(PolynomialScheduler()), None if name == TRUTH else sampler(name)
