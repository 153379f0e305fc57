"""How much the image changes each decoding step, and how unevenly that is spread over the steps."""

from typing import Literal, get_args

import torch
from torch import Tensor

Divergence = Literal["kl", "js", "logratio"]


def visual_sensitivity(
    logits_TV: Tensor, blind_logits_TV: Tensor, divergence: Divergence = "kl", targets_T: Tensor | None = None
) -> Tensor:
    r"""Compare the next-token distributions p with the image and q without it, at each step.

    ========== ==========================================================================
    divergence s, in nats
    ========== ==========================================================================
    kl         :math:`\sum_y p(y) \log \frac{p(y)}{q(y)}`
    js         :math:`\tfrac12 KL(p \| m) + \tfrac12 KL(q \| m)`, m = (p + q)/2; at most ln 2
    logratio   :math:`\log p(y_t) - \log q(y_t)` of the token that came; may be negative
    ========== ==========================================================================

    Args:
        logits_TV: logits with the image, ``[..., V]``.
        blind_logits_TV: logits of the same steps without it, aligned by their place in the response.
        divergence: see above.
        targets_T: tokens that came, ``[...]``; needed by ``logratio``.

    Returns:
        s, float32 ``[...]``.

    Raises:
        ValueError: if the divergence is unknown, the shapes differ, or ``logratio`` lacks its targets.
    """
    if logits_TV.shape != blind_logits_TV.shape:
        raise ValueError(
            f"logits with and without the image have shapes {list(logits_TV.shape)} and {list(blind_logits_TV.shape)}: "
            "align both runs by the index in the response"
        )
    log_p, log_q = logits_TV.float().log_softmax(dim=-1), blind_logits_TV.float().log_softmax(dim=-1)
    if divergence == "kl":
        return _kl(log_p, log_q)
    if divergence == "js":
        log_m = torch.logaddexp(log_p, log_q) - torch.log(torch.tensor(2.0))
        return (_kl(log_p, log_m) + _kl(log_q, log_m)) / 2
    if divergence == "logratio":
        if targets_T is None:
            raise ValueError("divergence='logratio' needs the tokens that came: pass targets_T")
        return (log_p - log_q).gather(-1, targets_T.unsqueeze(-1)).squeeze(-1)
    raise ValueError(f"divergence={divergence!r} is unknown: use one of {', '.join(get_args(Divergence))}")


def entropy(logits_TV: Tensor) -> Tensor:
    """Return the entropy of the next token, nats, float32 ``[...]``."""
    log_p = logits_TV.float().log_softmax(dim=-1)
    return -(log_p.exp() * log_p).nan_to_num(0.0).sum(dim=-1)


def select_tokens(sensitivity_S: Tensor, rho: float) -> Tensor:
    r"""Return which steps are at or above the :math:`1 - \rho` quantile of all, bool ``[S]``.

    Raises:
        ValueError: if rho is not in (0, 1].
    """
    if not 0 < rho <= 1:
        raise ValueError(f"rho={rho} is the share of steps that count as sensitive: give a number in (0, 1]")
    return sensitivity_S >= torch.quantile(sensitivity_S.double(), 1 - rho)


def lorenz_curve(sensitivity_S: Tensor) -> tuple[Tensor, Tensor]:
    """Return shares of the steps, most sensitive first, and what share of all sensitivity they hold, each ``[S + 1]``, from 0."""
    ordered = sensitivity_S.double().clamp_min(0).sort(descending=True).values
    zero = ordered.new_zeros(1)
    held = torch.cat([zero, ordered.cumsum(0)]) / ordered.sum()
    return torch.linspace(0, 1, len(held), dtype=torch.float64), held


def top_share(sensitivity_S: Tensor, share: float = 0.2) -> float:
    """Return the part of all sensitivity that the most sensitive ``share`` of the steps holds."""
    ordered = sensitivity_S.double().clamp_min(0).sort(descending=True).values
    return float(ordered[: round(share * len(ordered))].sum() / ordered.sum())


def gini(sensitivity_S: Tensor) -> float:
    r"""Return the Gini coefficient: 0 if all steps are equally sensitive, near 1 if one holds everything."""
    steps, held = lorenz_curve(sensitivity_S)
    return float(2 * torch.trapezoid(held, steps) - 1)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dim=-1)
