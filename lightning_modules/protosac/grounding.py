"""Tie prototypes to real states: choose them, assign them one-to-one, and forget the optimiser's memory of those that moved.

Plain torch; the exact assignment is SciPy's.

Shape suffixes: K prototypes, N candidates, d latent size, A action size.
"""

import torch
from torch import Tensor, nn

EXACT_LIMIT = 20_000_000  # entries of the cost matrix beyond which the assignment is greedy
WIDEST_ACTION = 0.8


def distances_to(P_Kd: Tensor, Z_Nd: Tensor) -> Tensor:
    """Return squared distances, ``[K, N]``, exactly 0 between equal rows; for use without gradients."""
    return torch.cdist(P_Kd, Z_Nd, compute_mode="donot_use_mm_for_euclid_dist").square()


def distinct_rows(states: Tensor) -> Tensor:
    """Return the index of the first of each set of equal states, rising."""
    groups, group_of_N = torch.unique(states.flatten(1), dim=0, return_inverse=True)
    order_N = torch.arange(len(states), device=states.device)
    first = order_N.new_full((len(groups),), len(states)).scatter_reduce(0, group_of_N, order_N, "amin")
    return first.sort().values


def assign(cost_KN: Tensor) -> Tensor:
    r"""Give every prototype a candidate of its own.

    .. math::
        \min_{\text{one-to-one } \pi} \sum_k C_{k \pi(k)}

    Exact up to 2·10⁷ entries, greedy beyond.

    Args:
        cost_KN: finite costs, K <= N.

    Returns:
        Candidate of each prototype, ``[K]``, all different.

    Raises:
        ImportError: if SciPy is missing.
        ValueError: if there are fewer candidates than prototypes.
    """
    K, N = cost_KN.shape
    if N < K:
        raise ValueError(f"{K} prototypes cannot share {N} candidates one-to-one")
    if cost_KN.numel() > EXACT_LIMIT:
        return greedy_assignment(cost_KN)
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError("grounding prototypes needs SciPy: pip install 'leyden[rl]'") from error
    _, candidate_K = linear_sum_assignment(cost_KN.cpu().numpy())
    return torch.as_tensor(candidate_K, device=cost_KN.device)


def greedy_assignment(cost_KN: Tensor) -> Tensor:
    """Take the cheapest pair of a free prototype and a free candidate, K times; arguments as in :func:`assign`."""
    cost_KN = cost_KN.clone()
    candidate_K = torch.full((len(cost_KN),), -1, device=cost_KN.device)
    cheapest_K, at_K = cost_KN.min(dim=1)
    for _ in range(len(cost_KN)):
        row = cheapest_K.argmin()
        taken = at_K[row].clone()
        candidate_K[row] = taken
        cost_KN[:, taken] = torch.inf
        stale_K = (at_K == taken) & (candidate_K < 0)
        cheapest_K[stale_K], at_K[stale_K] = cost_KN[stale_K].min(dim=1)
        cheapest_K[row] = torch.inf
    return candidate_K


def kmeans_plus_plus(Z_Nd: Tensor, K: int, generator: torch.Generator | None = None) -> Tensor:
    r"""Choose K different candidates that spread out: each next one with probability in proportion to its squared distance
    to the nearest one chosen, the first uniformly. Where all that remain coincide with chosen ones, uniformly among them.

    Args:
        Z_Nd: embedded candidates, K <= N.
        K: number wanted.
        generator: source of randomness, on the device of ``Z_Nd``.

    Returns:
        Indices, ``[K]``.

    Source: Arthur and Vassilvitskii 2007.
    """
    free_N = Z_Nd.new_ones(len(Z_Nd))
    nearest_N = torch.full_like(free_N, torch.inf)
    chosen: list[Tensor] = []
    for _ in range(K):
        spread_N = torch.where(nearest_N.isinf(), free_N, nearest_N)
        weights_N = torch.where(spread_N.sum() > 0, spread_N, free_N)
        new_1 = torch.multinomial(weights_N, 1, generator=generator)
        chosen.append(new_1)
        free_N[new_1] = 0
        nearest_N = torch.minimum(nearest_N, distances_to(Z_Nd[new_1], Z_Nd).squeeze(0))
    return torch.cat(chosen)


def farthest_candidates(P_Kd: Tensor, Z_Nd: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Choose candidates one after another, each the one with the largest distance to its nearest prototype or earlier choice.

    Returns:
        The candidates, and the prototype that each is nearest to, both ``[count]``.
    """
    nearest_N, owner_N = distances_to(P_Kd, Z_Nd).min(dim=0)
    chosen: list[Tensor] = []
    for _ in range(count):
        new_1 = nearest_N.argmax().unsqueeze(0)
        chosen.append(new_1)
        nearest_N = torch.minimum(nearest_N, distances_to(Z_Nd[new_1], Z_Nd).squeeze(0))
    candidates = torch.cat(chosen) if chosen else owner_N[:0]
    return candidates, owner_N[candidates]


def spread_actions(K: int, action_dim: int, generator: torch.Generator | None = None) -> Tensor:
    r"""Return means :math:`\mu = \mathrm{atanh}(a)` of actions spread over [-0.8, 0.8], ``[K, A]``.

    One action dimension is spaced evenly (a single prototype stays at 0), several are drawn uniformly.
    """
    if action_dim == 1:
        actions_KA = torch.linspace(-WIDEST_ACTION, WIDEST_ACTION, K).unsqueeze(1) if K > 1 else torch.zeros(1, 1)
    else:
        device = generator.device if generator is not None else None
        actions_KA = (2 * torch.rand(K, action_dim, generator=generator, device=device) - 1) * WIDEST_ACTION
    return actions_KA.atanh()


def reset_adam_rows(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, rows_K: Tensor) -> None:
    """Zero the running averages that the optimiser keeps for some rows of a parameter, so that stale momentum does not drag them.

    Args:
        optimizer: Adam or any other whose state has the parameter's shape; its step count stays.
        parameter: one of its parameters.
        rows_K: mask of the rows.

    Raises:
        ValueError: if the optimiser does not train the parameter.
    """
    if not any(parameter is trained for group in optimizer.param_groups for trained in group["params"]):
        raise ValueError("the optimizer does not train these prototypes: pass the one that was built from the actor's parameters")
    for value in optimizer.state.get(parameter, {}).values():
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            value[rows_K] = 0
