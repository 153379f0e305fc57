"""Does Sheaf-ADMM solve the problem it states? Its distance to the KKT point of a small problem, iteration by iteration."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

AGENTS, STALK_DIM, EDGE_DIM = 5, 4, 2
CG_STEPS, RHO = 5, 1.0
ITERATIONS = (0, 1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90, 100)
METRIC = "kkt_error"


def kkt_errors(start: Any, seed: int) -> Mapping[str, float]:
    r"""Return :math:`\lVert x^k - x^\star \rVert / \lVert x^\star \rVert` for the iterations of one random problem.

    Five agents in a chain minimise :math:`\sum_i \tfrac12 x_i^\top \mathrm{diag}(Q_i) x_i + q_i^\top x_i` subject to
    :math:`\delta x = 0`, with random Q, q and restriction maps. ADMM's hard z-update does five steps of CG.

    Args:
        start: start vector of CG, ``dual``, ``zero`` or ``released``.
        seed: seed of the problem.

    Source: Sheaf-ADMM (arXiv 2605.31005), sections 3 and 4; the comparison of starts is ours.
    """
    import torch

    from lightning_modules.sheaf_admm.admm import SheafADMM
    from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
    from lightning_modules.sheaf_admm.z_solvers import CGConsensus

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    laplacian = random_chain(generator)
    Q_N1d = torch.rand(AGENTS, 1, STALK_DIM, generator=generator, dtype=torch.float64) + 0.5
    q_N1d, z0_N1d = normal(AGENTS, 1, STALK_DIM), normal(AGENTS, 1, STALK_DIM)
    admm = SheafADMM(CGConsensus("hard", steps=CG_STEPS, start=start, eps=0.0), rho_init=RHO).double()
    with torch.no_grad():
        output = admm(DiagonalProx(Q_N1d, q_N1d), laplacian, z0_N1d, steps=ITERATIONS[-1], window=1, keep=ITERATIONS)
    solution_N1d = kkt_point(laplacian, Q_N1d, q_N1d)
    errors = {k: float((output.kept[k] - solution_N1d).norm() / solution_N1d.norm()) for k in ITERATIONS}
    return {METRIC: errors[ITERATIONS[-1]], **{f"{METRIC}_at_{k}": error for k, error in errors.items()}}


def random_chain(generator: Any) -> Any:
    """Return the Laplacian of a chain of agents with random restriction maps; δ has full rank, its kernel dimension 12."""
    import torch

    from lightning_modules.sheaf_admm.graph import AgentGraph
    from lightning_modules.sheaf_admm.laplacian import SheafLaplacian

    first = torch.arange(AGENTS - 1)
    slots = torch.zeros_like(first)
    graph = AgentGraph(torch.stack([first, first + 1]), slots, slots, num_nodes=AGENTS, num_slots=1)
    F_u, F_v = torch.randn(2, AGENTS - 1, 1, EDGE_DIM, STALK_DIM, generator=generator, dtype=torch.float64)
    return SheafLaplacian(graph, F_u, F_v)


def kkt_point(laplacian: Any, Q_N1d: "Tensor", q_N1d: "Tensor") -> "Tensor":
    r"""Solve the KKT system densely for x.

    .. math:: \begin{pmatrix} \mathrm{diag}(Q) & \delta^\top \\ \delta & 0 \end{pmatrix} \binom{x}{\lambda} = \binom{-q}{0}
    """
    import torch

    size = Q_N1d.numel()
    identity = torch.eye(size, dtype=Q_N1d.dtype).view(*Q_N1d.shape[::2], size).transpose(1, 2)
    delta = laplacian.delta(identity).transpose(1, 2).flatten(0, 1)
    corner = delta.new_zeros(len(delta), len(delta))
    matrix = torch.cat([torch.cat([Q_N1d.flatten().diag(), delta.t()], 1), torch.cat([delta, corner], 1)])
    right_side = torch.cat([-q_N1d.flatten(), corner[0]])
    return torch.linalg.solve(matrix, right_side)[:size].view_as(q_N1d)
