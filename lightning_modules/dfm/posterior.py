"""From a network's logits to the posterior of the data given a noisy state (plain torch).

Legend: B samples, D tokens, S tokens of the data, V ids (S, or S + 1 with the mask).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TOLERANCE = 1e-3
FAULTS = (
    "probabilities that are negative, NaN or do not sum to 1 for each token; did it return logits? Wrap it in PosteriorFromLogits "
    "or CarryOverPosterior",
    "mass on the mask id, which no data token can be: wrap the network in CarryOverPosterior",
    "a change of tokens that are not masked any more, which are final: wrap the network in CarryOverPosterior",
)


class PosteriorFromLogits(nn.Module):
    r"""Softmax of a network's logits, :math:`p^i(z \mid x, t)`.

    Args:
        net: ``net(x, t, **extras)`` returns logits ``[B, D, V]``.
    """

    def __init__(self, net: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return probabilities ``[B, D, V]`` of states ``[B, D]`` at times ``[B]``."""
        return self.log_probabilities(x, t, **extras).exp()

    def log_probabilities(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return log probabilities, which serve as logits of a loss."""
        return _at_least_single(self.net(x, t, **extras)).log_softmax(dim=-1)


class CarryOverPosterior(nn.Module):
    r"""The posterior of a masked source, with what is known of it built in.

    .. math::
        p^i(z \mid x) = \begin{cases}
            \operatorname{softmax}_{z < S}(\ell^i_z) & x^i = \text{mask} \\ 1[z = x^i] & \text{else}
        \end{cases}, \qquad p^i(\text{mask} \mid x) = 0

    Args:
        net: ``net(x, t, **extras)`` returns logits ``[B, D, S]`` or ``[B, D, S + 1]``.
        mask_id: S, the last id.

    Source: Sahoo et al. 2024 (arXiv 2406.07524), zero masking probabilities and carry-over unmasking.
    """

    def __init__(self, net: Callable[..., Tensor], mask_id: int) -> None:
        super().__init__()
        self.net, self.mask_id = net, mask_id

    def forward(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return probabilities ``[B, D, S + 1]`` of states ``[B, D]`` at times ``[B]``."""
        return self.log_probabilities(x, t, **extras).exp()

    def log_probabilities(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return log probabilities, −∞ where a value is impossible; they serve as logits of a loss.

        Raises:
            ValueError: if the network returns neither S nor S + 1 logits.
        """
        logits = self.net(x, t, **extras)
        if logits.shape[-1] not in (self.mask_id, self.mask_id + 1):
            raise ValueError(f"mask_id={self.mask_id} needs {self.mask_id} or {self.mask_id + 1} logits, got {logits.shape[-1]}")
        log_p = _at_least_single(logits[..., : self.mask_id]).log_softmax(dim=-1)
        log_p = F.pad(log_p, (0, 1), value=-torch.inf)
        known = x != self.mask_id
        log_p = log_p.masked_fill(known.unsqueeze(-1), -torch.inf)
        itself = x.unsqueeze(-1)
        return log_p.scatter(-1, itself, log_p.gather(-1, itself).masked_fill(known.unsqueeze(-1), 0.0))


def probability_faults(p_BDV: Tensor, x_BD: Tensor, mask_id: int | None) -> Tensor:
    """Return which of :data:`FAULTS` probabilities have, bool ``[3]``, without waiting for the device."""
    improper = ~((p_BDV.sum(dim=-1) - 1).abs() <= TOLERANCE).all() | (p_BDV.amin() < 0)
    if mask_id is None:
        none = torch.zeros_like(improper)
        return torch.stack([improper, none, none])
    on_mask = (p_BDV[..., mask_id] > TOLERANCE).any()
    p_itself_BD = p_BDV.gather(-1, x_BD.unsqueeze(-1)).squeeze(-1)
    changed = ((x_BD != mask_id) & (p_itself_BD < 1 - TOLERANCE)).any()
    return torch.stack([improper, on_mask, changed])


def check_probabilities(p_BDV: Tensor, x_BD: Tensor, mask_id: int | None = None, step: int = 0) -> None:
    """Raise a ValueError if a model's answer cannot be a posterior.

    Args:
        p_BDV: what the model returned, ``[B, D, V]``.
        x_BD: the states it was asked about, ``[B, D]``.
        mask_id: id of the mask, None for the uniform source.
        step: step of the solver, for the message.
    """
    raise_faults(probability_faults(p_BDV, x_BD, mask_id), step)


def raise_faults(faults: Tensor, step: int) -> None:
    """Raise a ValueError for the first fault, ``[3]``; waits for the device."""
    for fault, meaning in zip(faults.tolist(), FAULTS, strict=True):
        if fault:
            raise ValueError(f"the model returned at step {step} {meaning}")


def _at_least_single(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
