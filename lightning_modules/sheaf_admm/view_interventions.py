"""Interventions on what the agents see.

Shape suffixes: N agents, B batch, C candidates.
"""

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.interventions import Intervention


class LiarViews(Intervention):
    """Let one agent of each sample, the liar, see something else than its part of the problem.

    The liars are drawn uniformly by the seed. A liar gets the view of the same agent in the next sample of the batch; where that
    shows the same, in the one after it, and so on, and where all samples show the same, the view of the next agent of its own
    sample that differs. Only if nothing differs does it keep its own. Its answer is read with the false view too, so the pixels
    that it alone answers for are lost from the start.

    Args:
        seed: seed of the draw.

    Attributes:
        liars: the liar of each sample of the last batch, ``[B]``; None before the first.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.liars: Tensor | None = None

    def on_view(self, view_NB: Tensor) -> Tensor:
        agents, batch = view_NB.shape[:2]
        generator = torch.Generator().manual_seed(self.seed)
        liars_B = torch.randint(agents, (batch,), generator=generator).to(view_NB.device)
        own_B = torch.arange(batch, device=view_NB.device)
        other_samples_BC = (own_B[:, None] + torch.arange(1, batch, device=view_NB.device)) % batch
        other_agents_BC = (liars_B[:, None] + torch.arange(1, agents, device=view_NB.device)) % agents
        agents_BC = torch.cat([liars_B[:, None].expand_as(other_samples_BC), other_agents_BC], dim=1)
        samples_BC = torch.cat([other_samples_BC, own_B[:, None].expand_as(other_agents_BC)], dim=1)

        differs_BC = (view_NB[agents_BC, samples_BC] != view_NB[liars_B, own_B][:, None]).flatten(2).any(dim=2)
        first_B = differs_BC.int().argmax(dim=1)
        self.liars = liars_B
        return view_NB.index_put((liars_B, own_B), view_NB[agents_BC[own_B, first_B], samples_BC[own_B, first_B]])
