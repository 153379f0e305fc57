"""Interventions on a running ADMM: small objects whose hooks change a state, a penalty or the graph between iterations.

Iterations are counted k = 1, 2, ..., K. In iteration k the hooks run in this order: ``on_laplacian``, ``on_rho`` and
``on_gamma`` before the iteration, ``on_x`` right after the x-update (neighbours see the changed proposal in the same
iteration), ``on_z`` and ``on_u`` on the finished states. A hook returns what it was given, or a changed copy. It must be
deterministic: activation checkpointing repeats it.

Shape suffixes: N agents, B batch, d vertex stalk, E edges.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian

HOOKS = ("on_view", "on_laplacian", "on_rho", "on_gamma", "on_x", "on_z", "on_u")


class Intervention:
    """Change nothing; a subclass overrides the hooks it needs."""

    def validate(self, num_agents: int, steps: int) -> None:
        """Raise ValueError if the intervention does not fit the run."""

    def on_view(self, view_NB: Tensor) -> Tensor:
        """Change what the agents see, ``[N, B, ...]``, before anything is computed."""
        return view_NB

    def on_laplacian(self, k: int, laplacian: SheafLaplacian) -> SheafLaplacian:
        return laplacian

    def on_rho(self, k: int, rho: Tensor) -> Tensor:
        return rho

    def on_gamma(self, k: int, gamma: float) -> float:
        return gamma

    def on_x(self, k: int, x_NBd: Tensor) -> Tensor:
        return x_NBd

    def on_z(self, k: int, z_NBd: Tensor) -> Tensor:
        return z_NBd

    def on_u(self, k: int, u_NBd: Tensor) -> Tensor:
        return u_NBd


def check_interventions(interventions: Sequence[Intervention], num_agents: int, steps: int) -> None:
    """Refuse objects that are no interventions, misspelt hooks, and interventions that do not fit the run."""
    for intervention in interventions:
        name = type(intervention).__name__
        if not isinstance(intervention, Intervention):
            raise ValueError(f"{name} is not an Intervention; subclass it and override some of {', '.join(HOOKS)}")
        unknown = [hook for hook in dir(intervention) if hook.startswith("on_") and hook not in HOOKS]
        if unknown:
            raise ValueError(f"{name} has an unknown hook {unknown[0]!r}; the hooks are {', '.join(HOOKS)}")
        intervention.validate(num_agents, steps)


class _Windowed(Intervention):
    """Act on some agents during the iterations ``first <= k <= last``.

    Args:
        agents: agent numbers, or None for all.
        first: first iteration, from 1.
        last: last iteration, or None for the end of the run.
    """

    def __init__(self, agents: Sequence[int] | None = None, first: int = 1, last: int | None = None) -> None:
        if first < 1 or (last is not None and last < first):
            raise ValueError(f"{type(self).__name__} needs 1 <= first <= last, got first={first}, last={last}")
        self.agents = None if agents is None else list(agents)
        self.first = first
        self.last = last

    def validate(self, num_agents: int, steps: int) -> None:
        check_agents(self.agents or (), num_agents, type(self).__name__)
        if self.first > steps:
            raise ValueError(f"{type(self).__name__} starts at iteration {self.first}, but the run has only {steps}")

    def _active(self, k: int) -> bool:
        return self.first <= k and (self.last is None or k <= self.last)

    def _replace(self, state_NBd: Tensor, value: Tensor) -> Tensor:
        """Return the state with ``value`` in the rows of the chosen agents."""
        if self.agents is None:
            return value.to(state_NBd).expand_as(state_NBd)
        index = torch.tensor(self.agents, device=state_NBd.device)
        return state_NBd.index_copy(0, index, value.to(state_NBd).expand_as(state_NBd[index]))


class ClampProposal(_Windowed):
    """Hold the proposals x of some agents at a given value.

    Args:
        agents: agent numbers, or None for all.
        value: what they propose, broadcasts to ``[len(agents), B, d]``.
        first, last: iterations from and to which it holds.
    """

    def __init__(self, agents: Sequence[int] | None, value: Tensor, first: int = 1, last: int | None = None) -> None:
        super().__init__(agents, first, last)
        self.value = value

    def on_x(self, k: int, x_NBd: Tensor) -> Tensor:
        return self._replace(x_NBd, self.value) if self._active(k) else x_NBd


class ZeroDual(_Windowed):
    """Erase the disagreement memory u of some agents (default: all) at the end of each iteration of a window."""

    def on_u(self, k: int, u_NBd: Tensor) -> Tensor:
        return self._replace(u_NBd, u_NBd.new_zeros(())) if self._active(k) else u_NBd


class KickConsensus(_Windowed):
    """Add Gaussian noise to the consensus z of some agents (default: all) once, to watch the recovery.

    Args:
        k: iteration after which z is kicked.
        scale: standard deviation of the noise.
        agents: agent numbers, or None for all.
        seed: seed of the noise.
    """

    def __init__(self, k: int, scale: float, agents: Sequence[int] | None = None, seed: int = 0) -> None:
        super().__init__(agents, k, k)
        self.scale = scale
        self.seed = seed

    def on_z(self, k: int, z_NBd: Tensor) -> Tensor:
        if not self._active(k):
            return z_NBd
        generator = torch.Generator().manual_seed(self.seed)
        noise_NBd = torch.randn(z_NBd.shape, generator=generator, dtype=z_NBd.dtype).to(z_NBd.device)
        kicked_NBd = z_NBd + self.scale * noise_NBd
        return kicked_NBd if self.agents is None else self._replace(z_NBd, kicked_NBd[self.agents])


class ScalePenalty(_Windowed):
    """Multiply the penalty ρ and the disagreement weight γ during a window of iterations.

    The scaled dual u keeps its value; it means a force of ρu, so that a change of ρ changes the force with it.

    Args:
        rho: positive factor of ρ.
        gamma: factor of γ, not negative; only a soft z-update feels it.
        first, last: iterations from and to which it holds.
    """

    def __init__(self, rho: float = 1.0, gamma: float = 1.0, first: int = 1, last: int | None = None) -> None:
        super().__init__(None, first, last)
        if rho <= 0 or gamma < 0:
            raise ValueError(f"ScalePenalty needs a factor rho > 0 and a factor gamma >= 0, got rho={rho}, gamma={gamma}")
        self.rho = rho
        self.gamma = gamma

    def on_rho(self, k: int, rho: Tensor) -> Tensor:
        return self.rho * rho if self._active(k) else rho

    def on_gamma(self, k: int, gamma: float) -> float:
        return self.gamma * gamma if self._active(k) else gamma


class DropEdges(_Windowed):
    """Silence edges during a window of iterations: both ends stop talking.

    Args:
        edge_mask: weight of each edge, ``[E]`` or ``[E, B]``, 0 drops it.
        first, last: iterations from and to which it holds.
    """

    def __init__(self, edge_mask: Tensor, first: int = 1, last: int | None = None) -> None:
        super().__init__(None, first, last)
        self.edge_mask = edge_mask

    def on_laplacian(self, k: int, laplacian: SheafLaplacian) -> SheafLaplacian:
        return laplacian.with_edge_mask(self.edge_mask) if self._active(k) else laplacian


class DropRandomEdges(_Windowed):
    """Silence a random share of the edges, the same in all samples, during a window of iterations; fits graphs of any size.

    Args:
        share: share of the edges, in [0, 1]; their number is rounded.
        seed: seed of the draw.
        first, last: iterations from and to which it holds.
    """

    def __init__(self, share: float, seed: int = 0, first: int = 1, last: int | None = None) -> None:
        super().__init__(None, first, last)
        if not 0 <= share <= 1:
            raise ValueError(f"DropRandomEdges drops a share between 0 and 1 of the edges, got {share=}")
        self.share = share
        self.seed = seed

    def on_laplacian(self, k: int, laplacian: SheafLaplacian) -> SheafLaplacian:
        if not self._active(k):
            return laplacian
        edges = laplacian.graph.num_edges
        order = torch.randperm(edges, generator=torch.Generator().manual_seed(self.seed))
        mask = torch.ones(edges)
        mask[order[: round(self.share * edges)]] = 0
        return laplacian.with_edge_mask(mask.to(laplacian.graph.edge_index.device))


class DropAgents(_Windowed):
    """Silence every edge of some agents during a window of iterations; they go on alone."""

    def on_laplacian(self, k: int, laplacian: SheafLaplacian) -> SheafLaplacian:
        if not self._active(k):
            return laplacian
        agents = range(laplacian.num_nodes) if self.agents is None else self.agents
        return laplacian.with_edge_mask(edges_without_agents(laplacian.graph, agents))


def edges_without_agents(graph: AgentGraph, agents: Sequence[int]) -> Tensor:
    """Return the edge mask ``[E]`` that is 0 at every edge of the given agents and 1 elsewhere."""
    check_agents(agents, graph.num_nodes, "edges_without_agents")
    present = torch.ones(graph.num_nodes, dtype=torch.bool, device=graph.edge_index.device)
    present[list(agents)] = False
    return graph.edges_between(present)


def check_agents(agents: Sequence[int], num_agents: int, name: str) -> None:
    """Refuse agent numbers outside ``0..num_agents - 1``."""
    for agent in agents:
        if not 0 <= agent < num_agents:
            raise ValueError(f"{name}: there is no agent {agent}, the agents are 0..{num_agents - 1}")
