"""Exact posteriors of known laws: what a perfect network would return (plain torch).

Both oracles are modules with the signature of a model, and answer in float64.

Legend: B samples, D tokens, S tokens of the data, V ids (S, or S + 1 with the mask).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.dfm.schedulers import wrap_scheduler
from lightning_modules.dfm.sources import Source

LARGEST_CHUNK = 2**23


class Oracle(nn.Module):
    r"""Posterior of a law of the data under the mixture path.

    Args:
        source: where the path starts.
        scheduler: κ.
    """

    def __init__(self, source: Source, scheduler: Any) -> None:
        super().__init__()
        self.source, self.scheduler = source, wrap_scheduler(scheduler)

    def likelihood(self, x: Tensor, t: Tensor) -> Tensor:
        r"""Return how likely each value of the data makes what is seen of its token, ``[B, D, S]``.

        .. math::
            \ell^i(v) = \frac{1 - \kappa_t}{S} + \kappa_t 1[x^i = v] \quad (\text{uniform}), \qquad
            \ell^i(v) = 1[x^i \in \{\text{mask}, v\}] \quad (\text{masks, up to a factor})
        """
        num_tokens, mask_id = self.source.num_tokens, self.source.mask_id
        size = (*x.shape, self.source.vocabulary_size)
        if mask_id is not None:
            masked_BDV = (x == mask_id).double().unsqueeze(-1).expand(size)
            return masked_BDV.scatter(-1, x.unsqueeze(-1), 1.0)[..., :num_tokens]
        kappa_B11 = self.scheduler.kappa(t).view(-1, 1, 1)
        return ((1 - kappa_B11) / num_tokens).expand(size).scatter_add(-1, x.unsqueeze(-1), kappa_B11.expand(*x.shape, 1))

    def _over_vocabulary(self, p_BDS: Tensor) -> Tensor:
        return F.pad(p_BDS, (0, self.source.vocabulary_size - p_BDS.shape[-1]))


class TableOracle(Oracle):
    r"""Exact posterior of a law that is given as a table.

    .. math::
        p^i(z \mid x, t) \propto \sum_{v : v^i = z} P(v) \prod_k \ell^k(v^k)

    Args:
        table: P, probabilities ``[S] * D`` that sum to 1.
        source: where the path starts.
        scheduler: κ.

    Raises:
        ValueError: if the table is no law on tokens of the source.
    """

    table: Tensor

    def __init__(self, table: Any, source: Source, scheduler: Any) -> None:
        super().__init__(source, scheduler)
        law = torch.as_tensor(table, dtype=torch.float64)
        if law.ndim == 0 or set(law.shape) != {source.num_tokens}:
            raise ValueError(f"the table must have {source.num_tokens} entries along every axis, got {tuple(law.shape)}")
        if bool((law < 0).any()) or not math.isclose(law.sum().item(), 1, abs_tol=1e-9):
            raise ValueError(f"the table must hold probabilities that sum to 1, got a sum of {law.sum().item():.6g}")
        self.register_buffer("table", law)

    @property
    def length(self) -> int:
        """D."""
        return self.table.ndim

    def forward(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return probabilities ``[B, D, V]`` of states ``[B, D]`` at times ``[B]``."""
        rows = max(1, LARGEST_CHUNK // self.source.num_tokens ** (self.length - 1))
        chunks = zip(x.split(rows), t.split(rows), strict=True)
        return self._over_vocabulary(torch.cat([self._posterior(*chunk) for chunk in chunks]))

    def _posterior(self, x: Tensor, t: Tensor) -> Tensor:
        likelihood_BDS = self.likelihood(x, t)
        marginals = [self._weights(likelihood_BDS, token) for token in range(self.length)]
        p_BDS = torch.stack(marginals, dim=1) * likelihood_BDS
        return p_BDS / p_BDS.sum(dim=-1, keepdim=True)

    def _weights(self, likelihood_BDS: Tensor, token: int) -> Tensor:
        """Return the sum over all other tokens of the table times their likelihoods, ``[B, S]``."""
        others = [k for k in range(self.length) if k != token]
        table = self.table.permute(*others, token)
        if not others:
            return table.expand(len(likelihood_BDS), -1)
        weights = likelihood_BDS[:, others[0]] @ table.flatten(1)
        for k in others[1:]:
            weights = torch.einsum("bs,bsr->br", likelihood_BDS[:, k], weights.view(len(weights), self.source.num_tokens, -1))
        return weights

    def marginal(self, t: float) -> Tensor:
        r"""Return the law of the path at a time, ``[V] * D``: every token is the source's with probability :math:`1 - \kappa_t`."""
        num_tokens, kappa = self.source.num_tokens, self.scheduler.kappa(t).item()
        channel_SV = kappa * torch.eye(num_tokens, self.source.vocabulary_size, dtype=torch.float64)
        if self.source.mask_id is None:
            channel_SV += (1 - kappa) / num_tokens
        else:
            channel_SV[:, self.source.mask_id] = 1 - kappa
        law = self.table.cpu()
        for _ in range(self.length):
            law = torch.tensordot(law, channel_SV, dims=([0], [0]))
        return law


class MarkovOracle(Oracle):
    r"""Exact posterior of a Markov chain of any length, by the forward-backward recursion.

    .. math::
        \alpha^{i+1} \propto (\alpha^i \ell^i) \, T, \qquad \beta^{i-1} \propto T \, (\beta^i \ell^i), \qquad
        p^i(z \mid x, t) \propto \alpha^i(z) \, \ell^i(z) \, \beta^i(z)

    Args:
        initial_S: law of the first token, ``[S]``.
        transition_SS: T, law of a token (columns) after another (rows), ``[S, S]``.
        source: where the path starts.
        scheduler: κ.

    Raises:
        ValueError: if the chain's probabilities do not sum to 1 or do not fit the source.
    """

    initial_S: Tensor
    transition_SS: Tensor

    def __init__(self, initial_S: Any, transition_SS: Any, source: Source, scheduler: Any) -> None:
        super().__init__(source, scheduler)
        initial, transition = (torch.as_tensor(law, dtype=torch.float64) for law in (initial_S, transition_SS))
        size = source.num_tokens
        if initial.shape != (size,) or transition.shape != (size, size):
            raise ValueError(
                f"a chain on {size} tokens needs an initial law [{size}] and transitions [{size}, {size}], "
                f"got {list(initial.shape)} and {list(transition.shape)}"
            )
        laws = torch.cat([initial.unsqueeze(0), transition])
        if bool((laws < 0).any()) or not bool(((laws.sum(dim=1) - 1).abs() < 1e-9).all()):
            raise ValueError("the initial law and every row of the transitions must hold probabilities that sum to 1")
        self.register_buffer("initial_S", initial)
        self.register_buffer("transition_SS", transition)

    def forward(self, x: Tensor, t: Tensor, **extras: Any) -> Tensor:
        """Return probabilities ``[B, D, V]`` of states ``[B, D]`` at times ``[B]``."""
        likelihood_BDS = self.likelihood(x, t)
        forward_BDS, backward_BDS = torch.empty_like(likelihood_BDS), torch.ones_like(likelihood_BDS)
        forward_BDS[:, 0] = self.initial_S
        for token in range(1, x.shape[1]):
            reached = (forward_BDS[:, token - 1] * likelihood_BDS[:, token - 1]) @ self.transition_SS
            forward_BDS[:, token] = reached / reached.sum(dim=-1, keepdim=True)
        for token in range(x.shape[1] - 1, 0, -1):
            explained = (backward_BDS[:, token] * likelihood_BDS[:, token]) @ self.transition_SS.T
            backward_BDS[:, token - 1] = explained / explained.sum(dim=-1, keepdim=True)
        p_BDS = forward_BDS * likelihood_BDS * backward_BDS
        return self._over_vocabulary(p_BDS / p_BDS.sum(dim=-1, keepdim=True))
