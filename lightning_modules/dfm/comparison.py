"""Samplers at equal numbers of network calls (plain torch).

Legend: B samples, D tokens.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers import DISCRETE_SOLVERS, SolverOutput, get_discrete_solver
from lightning_modules.dfm.sources import Source

TWO_CALLS = frozenset({"lc", "theta_rk2", "theta_trap"})
STEPLESS = frozenset({"uniformization", "first_hitting"})
SHORT_NAMES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "tau_categorical": ("tau_leaping", {"mode": "categorical"}),
    "euler_cond": ("euler", {"rate": "conditional"}),
    "tc_cond": ("tc", {"rate": "conditional"}),
}
LC = re.compile(r"lc_(\d+|auto)")


@dataclass(frozen=True)
class Sampler:
    """A solver with its options.

    Attributes:
        label: what it is called here.
        solver: name of the solver.
        options: options of its class.
    """

    label: str
    solver: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def steps_within(self, calls: int) -> int:
        """Return the number N of steps that cost at most so many calls; a last draw of tokens that are still masked is on top.

        Raises:
            ValueError: if there is no such step, or the sampler takes as many calls as it needs.
        """
        if self.solver in STEPLESS:
            raise ValueError(f"{self.label} takes as many calls as it needs: it cannot be compared at a number of calls")
        steps = calls // 2 if self.solver in TWO_CALLS else calls
        if steps < 1:
            raise ValueError(f"{self.label} makes two calls a step: calls={calls} leave it none")
        return steps

    def sample(
        self,
        model: Callable[..., Tensor],
        path: DiscretePath,
        source: Source,
        length: int,
        seed_B: Tensor,
        calls: int,
        delta: float,
    ) -> SolverOutput:
        """Draw a sample a seed, all of them at once.

        Args:
            model: ``model(x=, t=)`` returns probabilities.
            path: the path whose posterior it is.
            source: where the path starts.
            length: D.
            seed_B: seeds, int64 ``[B]``.
            calls: calls of the model that may be made.
            delta: how far from the data the grid ends.
        """
        solver = get_discrete_solver(
            self.solver, model=model, path=path, vocabulary_size=source.vocabulary_size, source=source, **self.options
        )
        x_init = source.init((len(seed_B), length), device=seed_B.device, seeds=seed_B)
        return solver.sample(x_init, n_steps=self.steps_within(calls), delta=delta, seeds=seed_B)


def sampler(label: str) -> Sampler:
    """Return a sampler by its name: a solver, ``tau_categorical``, ``euler_cond``, ``tc_cond``, ``lc_<j>`` or ``lc_auto``.

    Raises:
        ValueError: if there is none of this name.
    """
    if found := LC.fullmatch(label):
        return Sampler(label, "lc", {"j": "auto" if found[1] == "auto" else int(found[1])})
    if label in SHORT_NAMES:
        return Sampler(label, *SHORT_NAMES[label])
    if label not in DISCRETE_SOLVERS:
        known = ", ".join([*sorted(DISCRETE_SOLVERS), *SHORT_NAMES])
        raise ValueError(f"there is no sampler {label!r}: use {known}, lc_<j> or lc_auto")
    return Sampler(label, label)
