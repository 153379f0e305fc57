"""How far two stochastic passes of one network disagree."""

import math
from typing import Literal

import torch
from torch import Tensor

Form = Literal["jensen_shannon", "official_code"]


def consistency(first_NC: Tensor, second_NC: Tensor, temperature: float = 2.0, form: Form = "jensen_shannon") -> Tensor:
    r"""Return the mean divergence of two predictions from their mixture, a scalar.

    With :math:`p = \mathrm{softmax}(l_1/T)`, :math:`q = \mathrm{softmax}(l_2/T)` and :math:`m = (p+q)/2`:

    .. math::
        J = \frac{T^2}{2N} \sum_{i=1}^N \bigl( D(p_i, m_i) + D(q_i, m_i) \bigr), \qquad
        D(p, m) = \begin{cases}
            \mathrm{KL}(p \,\|\, m) & \text{"jensen\_shannon"} \\
            \mathrm{KL}(m \,\|\, p) & \text{"official\_code"}
        \end{cases}

    The official program exchanges the arguments of the Jensen-Shannon divergence. Both forms are 0 exactly where p = q.

    Args:
        first_NC: logits of the pass that learns.
        second_NC: logits of the other pass, of the same shape; no gradient flows into them.
        temperature: T.
        form: which divergence.

    Raises:
        ValueError: if the temperature is not positive or the form unknown.

    Source: the official program of GESC (arXiv 2511.16062); Lin 1991 for the divergence.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} of the consistency must be positive")
    if form not in ("jensen_shannon", "official_code"):
        raise ValueError(f"consistency form {form!r} is unknown: use 'jensen_shannon' or 'official_code'")
    log_p_NC = torch.log_softmax(first_NC / temperature, dim=-1)
    log_q_NC = torch.log_softmax(second_NC.detach() / temperature, dim=-1)
    log_m_NC = torch.logaddexp(log_p_NC, log_q_NC) - math.log(2.0)
    if form == "jensen_shannon":
        divergence_N = (log_p_NC.exp() * (log_p_NC - log_m_NC) + log_q_NC.exp() * (log_q_NC - log_m_NC)).sum(dim=-1)
    else:
        divergence_N = (log_m_NC.exp() * (2 * log_m_NC - log_p_NC - log_q_NC)).sum(dim=-1)
    return temperature**2 / 2 * divergence_N.mean()
