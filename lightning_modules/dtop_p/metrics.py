"""How many experts tokens use, and what that costs."""

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.dtop_p.experts import ACTIVATIONS, Activation


class ExpertCounts(Metric):
    """Sums of the experts that tokens use in L layers; batches of unequal size count by their tokens.

    Args:
        num_layers: mixture-of-experts layers L.
    """

    active: Tensor
    squares: Tensor
    tokens: Tensor
    higher_is_better = None
    full_state_update = False

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        for name in ("active", "squares", "tokens"):
            self.add_state(name, torch.zeros(num_layers, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, counts_LS: Tensor, valid_S: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            counts_LS: experts used by each token in each layer, ``[L, ...]``.
            valid_S: False for padding, or how much each token counts, of the shape of one layer.
        """
        counts_LS = counts_LS.flatten(1).double()
        valid = torch.ones_like(counts_LS[0]) if valid_S is None else valid_S.flatten().double()
        self.active += (counts_LS * valid).sum(dim=1)
        self.squares += (counts_LS.square() * valid).sum(dim=1)
        self.tokens += valid.sum()


class ActiveExperts(ExpertCounts):
    """Number of active experts a token: its ``mean`` and its standard deviation ``std`` over tokens, each ``[L]``."""

    def compute(self) -> dict[str, Tensor]:
        mean_L = self.active / self.tokens
        variance_L = (self.squares / self.tokens - mean_L.square()).clamp_min(0)
        return {"mean": mean_L.float(), "std": variance_L.sqrt().float()}


class ExpertFLOPs(ExpertCounts):
    r"""Floating-point operations of the active experts in a forward pass, a token: :math:`6 d f \sum_l a_l`, a scalar.

    Args:
        num_layers: mixture-of-experts layers L.
        d_model: d.
        d_hidden: hidden width f of an expert.
        activation: ``swiglu`` experts have three matrices, ``gelu`` experts two, and 4 in place of 6.
    """

    def __init__(self, num_layers: int, d_model: int, d_hidden: int, activation: Activation = "swiglu") -> None:
        super().__init__(num_layers)
        self.per_expert = expert_flops(d_model, d_hidden, activation)

    def compute(self) -> Tensor:
        return self.per_expert * (self.active / self.tokens).float().sum()


def expert_flops(d_model: int, d_hidden: int, activation: Activation = "swiglu") -> int:
    """Return the operations of an expert on a token: two for each of its weights, 3 d f with SwiGLU and 2 d f with GELU."""
    matrices = ACTIVATIONS[activation][1] + 1
    return 2 * matrices * d_model * d_hidden


def flops_matched(target: float, train_active: float, eval_active: float) -> bool:
    """Return whether a run may be called matched in operations with one that always uses ``target`` experts.

    Args:
        target: mean number of experts that was asked for.
        train_active: mean over all training steps, within 1 %.
        eval_active: mean in the evaluation, within 3 %.
    """
    return abs(train_active / target - 1) < 0.01 and abs(eval_active / target - 1) < 0.03
