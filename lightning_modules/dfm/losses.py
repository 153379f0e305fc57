"""Losses that train the posterior of a discrete flow (plain torch).

Legend: B samples, D tokens, V ids.
"""

import torch
from torch import Tensor, nn

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import hazard

SMALLEST_LOG = -30.0


class MixtureGeneralizedKL(nn.Module):
    r"""Generalised Kullback-Leibler divergence between the rates of the path and those of the network.

    .. math::
        \ell^i = -\frac{\kappa'_t}{1 - \kappa_t} \Bigl( p^i(x_t^i \mid x_t) - 1[x_t^i = x_1^i]
            + 1[x_t^i \ne x_1^i] \log p^i(x_1^i \mid x_t) \Bigr)

    Its sum over tokens and integral over t from 0 to 1, on average, bounds the negative log-likelihood in nats.
    :math:`\log p` is clamped at −30.

    Args:
        path: the path that made the states.
        reduction: ``mean`` over samples and tokens, ``sum``, or ``none`` for ``[B, D]``.

    Raises:
        ValueError: if the reduction is none of these.

    Source: Gat et al. 2024 (arXiv 2407.15595); Shaul et al. 2024 (arXiv 2412.03487).
    """

    def __init__(self, path: DiscretePath, reduction: str = "mean") -> None:
        super().__init__()
        self.path, self.reduction = path, _checked(reduction)

    def forward(self, logits: Tensor, x_1: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return the loss.

        Args:
            logits: logits or log probabilities, ``[B, D, V]``.
            x_1: data, ``[B, D]``.
            x_t: the state that the network saw, ``[B, D]``.
            t: its time, below 1, ``[B]``.
        """
        log_p = logits.log_softmax(dim=-1)
        p_stay_BD = log_p.gather(-1, x_t.unsqueeze(-1)).squeeze(-1).exp()
        log_p_data_BD = log_p.gather(-1, x_1.unsqueeze(-1)).squeeze(-1).clamp_min(SMALLEST_LOG)
        arrived_BD = x_t == x_1
        gap_BD = torch.where(arrived_BD, 1 - p_stay_BD, -p_stay_BD - log_p_data_BD)
        return _reduced(hazard(self.path.scheduler, t).to(gap_BD.dtype).unsqueeze(-1) * gap_BD, self.reduction)


class MaskedCrossEntropy(nn.Module):
    r"""Cross entropy :math:`-\log p^i(x_1^i \mid x_t)` of the masked tokens, or of all tokens where there is no mask.

    Args:
        mask_id: id of the mask; None counts every token.
        reduction: ``mean`` over the counted tokens, ``sum``, or ``none`` for ``[B, D]`` with 0 at tokens that do not count.

    Raises:
        ValueError: if the reduction is none of these.
    """

    def __init__(self, mask_id: int | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.mask_id, self.reduction = mask_id, _checked(reduction)

    def forward(self, logits: Tensor, x_1: Tensor, x_t: Tensor, t: Tensor | None = None) -> Tensor:
        """Return the loss; shapes as in :class:`MixtureGeneralizedKL`, t is not used."""
        log_p_BD = logits.log_softmax(dim=-1).gather(-1, x_1.unsqueeze(-1)).squeeze(-1).clamp_min(SMALLEST_LOG)
        if self.mask_id is None:
            return _reduced(-log_p_BD, self.reduction)
        masked_BD = x_t == self.mask_id
        loss_BD = torch.where(masked_BD, -log_p_BD, 0.0)
        return loss_BD.sum() / masked_BD.sum().clamp_min(1) if self.reduction == "mean" else _reduced(loss_BD, self.reduction)


def _reduced(loss_BD: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss_BD
    return loss_BD.mean() if reduction == "mean" else loss_BD.sum()


def _checked(reduction: str) -> str:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r} must be mean, sum or none")
    return reduction
