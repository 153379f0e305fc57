"""Known laws on few tokens, with their exact posteriors."""

from dataclasses import dataclass

import torch
from scipy.stats import chi2
from torch import Tensor

from datamodules.tokens.markov_blocks_table import markov_block_table
from lightning_modules.dfm.exact_law import ExactLaw
from lightning_modules.dfm.oracles import TableOracle
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import PolynomialScheduler, Scheduler
from lightning_modules.dfm.solvers import DiscreteSolver, get_discrete_solver
from lightning_modules.dfm.solvers.time_grid import TimeGrid, make_time_grid
from lightning_modules.dfm.sources import MaskSource, Source, UniformSource

DELTA = 0.05


@dataclass
class Flow:
    """A table of the data with a source and a schedule, and what follows from them."""

    table: Tensor
    source: Source
    scheduler: Scheduler

    def __post_init__(self) -> None:
        self.path = DiscretePath(self.scheduler)
        self.oracle = TableOracle(self.table, self.source, self.scheduler)
        self.exact = ExactLaw(self.oracle, self.source, self.path)

    @property
    def data(self) -> Tensor:
        """Law of the data on all states, ``[n]``."""
        size, tokens = self.source.vocabulary_size, self.table.ndim
        law = torch.zeros([size] * tokens, dtype=torch.float64)
        law[(slice(0, self.source.num_tokens),) * tokens] = self.table
        return law.flatten()

    def target(self, t: float) -> Tensor:
        """Law of the path at a time, ``[n]``."""
        return self.oracle.marginal(t).flatten()

    def grid(self, n_steps: int, delta: float = DELTA) -> TimeGrid:
        """The log grid."""
        return make_time_grid(self.scheduler, n_steps, delta=delta)

    def solver(self, name: str, **options: object) -> DiscreteSolver:
        """A solver that knows the exact posterior."""
        return get_discrete_solver(
            name, model=self.oracle, path=self.path, vocabulary_size=self.source.vocabulary_size, source=self.source, **options
        )


def markov_flow(kind: str, scheduler: Scheduler | None = None) -> Flow:
    """Blocks of three of eight tokens from a ``uniform`` or ``mask`` source."""
    return Flow(torch.from_numpy(markov_block_table()), source(kind, 8), scheduler or PolynomialScheduler())


def random_flow(kind: str, num_tokens: int, length: int, scheduler: Scheduler | None = None, seed: int = 0) -> Flow:
    """A random law."""
    weights = torch.rand([num_tokens] * length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    return Flow(weights / weights.sum(), source(kind, num_tokens), scheduler or PolynomialScheduler())


def source(kind: str, num_tokens: int) -> Source:
    return {"uniform": UniformSource, "mask": MaskSource}[kind](num_tokens)


def p_value(x: Tensor, law: Tensor, size: int) -> float:
    """Test counts of cells with an expectation of 5 or more, the others together."""
    strides = size ** torch.arange(x.shape[1] - 1, -1, -1)
    counts = (x * strides).sum(dim=1).bincount(minlength=len(law)).double()
    expected = law * len(x)
    large = expected >= 5
    counts, expected = (torch.cat([v[large], v[~large].sum().view(1)]) for v in (counts, expected))
    kept = expected >= 5
    assert counts[~kept].sum() <= 30
    counts, expected = counts[kept], expected[kept]
    return float(chi2.sf(((counts - expected).square() / expected).sum().item(), len(counts) - 1))
