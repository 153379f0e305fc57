"""What all samplers of discrete flows share: the loop over steps, the finish, honest counts of calls (plain torch).

Legend: B samples, D tokens, V ids, N steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers.categorical import draw
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step, make_time_grid
from lightning_modules.dfm.sources import Source

FINALS = ("auto", "state", "fill", "posterior")
CLOCK, TARGET, SECOND_CLOCK, SECOND_TARGET, FINAL = range(5)


@dataclass(frozen=True)
class SolverOutput:
    """Samples and what they cost.

    Args:
        x: samples, int64 ``[B, D]``.
        nfe_calls: how often the model was called, with any number of samples.
        evals_per_sample: rows that the model saw, divided by B.
        trajectory: states at the N + 1 times of the grid, before the finish, ``[N + 1, B, D]``; None unless asked for.
    """

    x: Tensor
    nfe_calls: int
    evals_per_sample: float
    trajectory: Tensor | None = None


class DiscreteSolver(ABC):
    """A sampler that steps through a grid of times.

    Args:
        model: ``model(x=, t=, **extras)`` returns probabilities ``[B, D, V]`` given states ``[B, D]`` and times ``[B]``.
        path: the path whose posterior it is.
        vocabulary_size: V.
        source: where the path starts.

    Raises:
        TypeError: if the solver is none for such a path.
        ValueError: if the source has another number of ids.
    """

    default_steps: ClassVar[int | None] = None
    path_class: ClassVar[type] = DiscretePath
    path: Any

    def __init__(self, model: Callable[..., Tensor], path: Any, vocabulary_size: int, source: Source) -> None:
        if not isinstance(path, self.path_class):
            raise TypeError(f"{type(self).__name__} needs a {self.path_class.__name__}, got {type(path).__name__}")
        if vocabulary_size != source.vocabulary_size:
            raise ValueError(
                f"vocabulary_size={vocabulary_size} does not fit {source}, which has {source.vocabulary_size} ids "
                "(the mask is the last one)"
            )
        self.model, self.vocabulary_size, self.source = model, vocabulary_size, source
        self.path = path

    @abstractmethod
    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        """Return the states at the end of a step, without changing those at its start."""

    @torch.no_grad()
    def sample(
        self,
        x_init: Tensor,
        *,
        n_steps: int | None = None,
        time_grid: Tensor | Sequence[float] | None = None,
        step_size: float | None = None,
        delta: float = 0.05,
        grid: str = "log",
        final: str = "auto",
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
        return_intermediates: bool = False,
        skip_finished: bool = False,
        dtype_categorical: torch.dtype = torch.float32,
        **model_extras: Any,
    ) -> SolverOutput:
        """Draw samples.

        The grid is made by :func:`~lightning_modules.dfm.solvers.time_grid.make_time_grid`.

        Args:
            x_init: draws of the source, integers ``[B, D]``.
            n_steps: N.
            time_grid: the times themselves, in place of ``n_steps``. One that ends at 1 leaves its last step to ``final``.
            step_size: length of a step, in place of ``n_steps``.
            delta: how far from the data the grid ends.
            grid: ``log`` or ``uniform``.
            final: ``state`` returns the state at the end; ``fill`` draws the tokens that are still masked from the posterior there,
                ``posterior`` draws all tokens from it (one more call each). ``auto`` is ``fill`` for masks, ``state`` else.
            generator: where random numbers come from; None takes the global generator.
            seeds: seed of each sample, int64 ``[B]``, in place of a generator: samples then do not depend on batch, rank or device.
            return_intermediates: keep the states at all times.
            skip_finished: do not ask the model about samples without masks (waits for the device at every step).
            dtype_categorical: dtype of the probabilities that tokens are drawn from.
            model_extras: what the model is given besides; a tensor whose first axis has B entries goes with its samples.

        Raises:
            TypeError: if ``x_init`` holds no integers.
            ValueError: if an argument contradicts another, or the model's answer is no posterior.
        """
        x = self._checked_start(x_init)
        if n_steps is None and time_grid is None and step_size is None:
            n_steps = self.default_steps
        times = make_time_grid(self.path.scheduler, n_steps, time_grid, step_size, delta, grid)
        mask_id = self.source.mask_id
        final = checked_final(final, mask_id, times.ends_at_one)
        if mask_id is not None and times.t[0] == 0 and not bool(self.source.is_masked(x).all()):
            raise ValueError(f"x_init must hold nothing but the mask id {mask_id} at t = 0: use source.init")
        if skip_finished and mask_id is None:
            raise ValueError("skip_finished needs a masked source: no sample of a uniform source is ever finished")
        if seeds is not None:
            if generator is not None:
                raise ValueError("give a generator or seeds, not both")
            if seeds.dtype != torch.int64 or seeds.shape != x.shape[:1]:
                raise ValueError(f"seeds must be int64 [{len(x)}], one a sample, got {seeds.dtype} {tuple(seeds.shape)}")
            seeds = seeds.to(x.device)
        if times.ends_at_one:
            times = times.without_last_step()
        steps = times.steps()
        chains = Chains(self.model, mask_id, len(x), len(steps), model_extras, generator, seeds, dtype_categorical, x.device)
        trajectory = [x]
        for step in steps:
            chains.step = step.index
            x = self._step_unfinished(x, step, chains) if skip_finished else self.step(x, step, chains)
            if return_intermediates:
                trajectory.append(x)
        if final != "state":
            chains.step = len(steps)
            rows = self.source.is_masked(x).any(dim=-1).nonzero().squeeze(-1) if skip_finished else None
            x = self._finish(x, times.t[-1].item(), final, chains, rows)
        chains.check()
        evals = chains.count.rows / len(x)
        return SolverOutput(x, chains.count.calls, evals, torch.stack(trajectory) if return_intermediates else None)

    def _step_unfinished(self, x: Tensor, step: Step, chains: Chains) -> Tensor:
        rows = self.source.is_masked(x).any(dim=-1).nonzero().squeeze(-1)
        if len(rows) == 0:
            return x
        return x.index_copy(0, rows, self.step(x[rows], step, chains.select(rows)))

    def _finish(self, x: Tensor, t: float, final: str, chains: Chains, rows: Tensor | None) -> Tensor:
        if rows is not None:
            return x if len(rows) == 0 else x.index_copy(0, rows, self._finish(x[rows], t, final, chains.select(rows), None))
        drawn = draw(chains.posterior(x, t).cumsum(dim=-1), chains.uniform(FINAL, x.shape[1:]))
        return drawn if final == "posterior" else torch.where(self.source.is_masked(x), drawn, x)

    def _checked_start(self, x_init: Tensor) -> Tensor:
        if x_init.dtype.is_floating_point or x_init.dtype.is_complex or x_init.dtype == torch.bool:
            raise TypeError(f"x_init must hold token ids (int64), got {x_init.dtype}")
        if x_init.ndim != 2 or x_init.numel() == 0:
            raise ValueError(f"x_init must be [samples, tokens] with at least one of each, got {tuple(x_init.shape)}")
        low, high = (bound.item() for bound in x_init.aminmax())
        if low < 0 or high >= self.vocabulary_size:
            raise ValueError(
                f"x_init holds ids from {low} to {high}, but there are {self.vocabulary_size}: 0 to {self.vocabulary_size - 1}"
            )
        return x_init.long()


def checked_final(final: str, mask_id: int | None, ends_at_one: bool = False) -> str:
    """Return ``state``, ``fill`` or ``posterior``, or raise a ValueError if the finish does not fit the source and the grid."""
    if final not in FINALS:
        raise ValueError(f"final={final!r} must be one of {', '.join(FINALS)}")
    if ends_at_one and final in ("auto", "state"):
        raise ValueError(
            "the grid ends at t = 1, where rates are infinite: end it earlier, or finish with final='posterior' "
            "(or 'fill' for a masked source)"
        )
    if final == "fill" and mask_id is None:
        raise ValueError("final='fill' needs a masked source: use 'state' or 'posterior'")
    if final == "auto":
        return "state" if mask_id is None else "fill"
    return final


def checked_rate(rate: str) -> str:
    """Return a kind of rate, or raise a ValueError."""
    if rate not in ("marginal", "conditional"):
        raise ValueError(f"rate={rate!r} must be marginal or conditional")
    return rate
