"""Sampling of 1 000 sequences of 64 tokens beside the discrete Euler solver of ``flow_matching``, and corrections beside none."""

from functools import cache, partial
from typing import Any

from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, Timed, measure

PEER = "flow-matching"
SEQUENCES, LENGTH, TOKENS, STEPS = 1_000, 64, 27, 64


@cache
def network(source: str) -> Any:
    """Return source, path and posterior of a small network with random weights."""
    import torch

    from lightning_modules.dfm.networks import TokenMLP
    from lightning_modules.dfm.path import DiscretePath
    from lightning_modules.dfm.posterior import CarryOverPosterior, PosteriorFromLogits
    from lightning_modules.dfm.schedulers import PolynomialScheduler
    from lightning_modules.dfm.sources import MaskSource, UniformSource

    torch.manual_seed(0)
    chosen = MaskSource(TOKENS) if source == "mask" else UniformSource(TOKENS)
    net = TokenMLP(chosen.vocabulary_size, TOKENS, LENGTH, width=320, depth=2, embed=8, residual=True, time=source == "uniform")
    posterior = CarryOverPosterior(net, TOKENS) if source == "mask" else PosteriorFromLogits(net)
    return chosen, DiscretePath(PolynomialScheduler()), posterior


def ours(source: str, solver: str, **options: Any) -> Timed:
    """Return sampling with equal steps to t = 1, the last of which draws all tokens from the posterior."""
    import torch

    from lightning_modules.dfm.solvers import get_discrete_solver

    chosen, path, posterior = network(source)
    sampler = get_discrete_solver(
        solver, model=posterior, path=path, vocabulary_size=chosen.vocabulary_size, source=chosen, **options
    )
    x_init, times = chosen.init((SEQUENCES, LENGTH)), torch.linspace(0, 1, STEPS + 1)
    return partial(sampler.sample, x_init, time_grid=times, final="posterior", generator=torch.Generator().manual_seed(1))


def theirs(source: str) -> Timed:
    """Return the same of ``flow_matching``, whose last step draws all tokens too."""
    import torch
    from flow_matching.path import MixtureDiscreteProbPath
    from flow_matching.path.scheduler import PolynomialConvexScheduler
    from flow_matching.solver import MixtureDiscreteEulerSolver

    chosen, _, posterior = network(source)
    path = MixtureDiscreteProbPath(PolynomialConvexScheduler(1.0))
    solver = MixtureDiscreteEulerSolver(posterior, path, vocabulary_size=chosen.vocabulary_size)
    x_init, times = chosen.init((SEQUENCES, LENGTH)), torch.linspace(0, 1, STEPS + 1)
    return partial(solver.sample, x_init, step_size=None, time_grid=times)


def beside_peer(source: str, solver: str, options: dict[str, Any], pairs: int) -> PairedTimes:
    return measure(ours(source, solver, **options), theirs(source), pairs, warm_up=1)


def beside_tc(source: str, solver: str, pairs: int) -> PairedTimes:
    return measure(ours(source, solver), ours(source, "tc"), pairs, warm_up=1)


NAME = f"{SEQUENCES:,} x {LENGTH} of {TOKENS} tokens, {STEPS} steps".replace(",0", " 0", 1)
SOURCES = {"uniform": "uniform noise", "mask": "masks"}
SOLVERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Euler, conditional", "euler", {"rate": "conditional"}),
    ("Euler", "euler", {}),
    ("TC", "tc", {}),
)
CASES = (
    *(
        Case(
            f"{title}, {kind}, {NAME}",
            "flow_matching's discrete Euler",
            installed_version(PEER),
            partial(beside_peer, source, solver, options),
            5,
            needs_package=PEER,
        )
        for source, kind in SOURCES.items()
        for title, solver, options in SOLVERS
    ),
    *(
        Case(f"{title}, {kind}, {NAME}", "our TC", "", partial(beside_tc, source, solver), 5)
        for source, kind in SOURCES.items()
        for title, solver in {"LC": "lc", "θ-trapezoid": "theta_trap"}.items()
    ),
)
