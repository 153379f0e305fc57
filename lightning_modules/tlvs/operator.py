"""The turn of a hidden state towards a direction, which keeps its length."""

import torch
from torch import Tensor

SMALLEST_NORM = 1e-6
SMALLEST_LENGTH = 1e-30


def steer(h_d: Tensor, direction_d: Tensor, strength: Tensor | float) -> Tensor:
    r"""Turn states towards a unit direction r by the strength a and keep their norm.

    .. math:: h \mapsto \lVert h \rVert \frac{u + a r}{\max(\lVert u + a r \rVert, 10^{-6})}, \qquad u = h / \lVert h \rVert

    Computed in float32, whose norms do not overflow.

    Args:
        h_d: states, ``[..., d]``.
        direction_d: r, ``[d]``, or one for each state.
        strength: a, a number or ``[...]``.

    Returns:
        The turned states, in the precision of ``h_d``.

    Source: the norm-preserving edit of VTI (arXiv 2410.15778) and VISTA (arXiv 2502.03628).
    """
    state_d = h_d.float()
    norm_1 = torch.linalg.vector_norm(state_d, dim=-1, keepdim=True)
    step_1 = norm_1 * torch.as_tensor(strength, dtype=torch.float32, device=h_d.device).unsqueeze(-1)
    turned_d = torch.addcmul(state_d, step_1, direction_d.float())  # ‖h‖ (u + a r)
    length_1 = torch.linalg.vector_norm(turned_d, dim=-1, keepdim=True)
    shortest_1 = (SMALLEST_NORM * norm_1).clamp_min(SMALLEST_LENGTH)
    return (turned_d * (norm_1 / torch.maximum(length_1, shortest_1))).to(h_d.dtype)
