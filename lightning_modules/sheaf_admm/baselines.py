"""Recurrent message-passing baseline: the same graph, encoder and decoder, but gated rounds instead of an optimisation."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.layers import NORM_EPS, Dense

Pooling = Literal["max", "mean"]
Routing = Literal["receiver", "receiver_slot"]


class Mailboxes:
    """Which messages come together: those with the same receiver, or the same receiver and receiving slot.

    Every agent offers one message a slot; an edge carries the message of the slot at its source end.

    Args:
        graph: who talks to whom.
        by_slot: keep the slots of a receiver apart.
    """

    def __init__(self, graph: AgentGraph, by_slot: bool) -> None:
        self.by_slot, slots = by_slot, graph.num_slots
        source, receiver = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
        source_slot = torch.cat([graph.slot_u, graph.slot_v])
        group = receiver * slots + torch.cat([graph.slot_v, graph.slot_u]) if by_slot else receiver
        order = group.argsort(stable=True)
        degree = group.bincount(minlength=graph.num_nodes * (slots if by_slot else 1))
        rank_in_group = torch.arange(len(group), device=group.device) - (degree.cumsum(0) - degree)[group[order]]
        nobody = graph.num_nodes * slots
        table = torch.full((len(degree), int(degree.max())), nobody, device=group.device)
        table[group[order], rank_in_group] = (source * slots + source_slot)[order]
        self.ragged = bool((table == nobody).any())
        self.table = table
        self.degree = degree.clamp_min(1).view(-1, 1, 1)
        self.silent = (degree == 0).view(-1, 1, 1)

    def pool(self, messages_NBSm: Tensor, pooling: Pooling) -> Tensor:
        """Pool messages to ``[N, B, m]`` or, by slot, ``[N, B, S * m]``; a group without messages has the value zero."""
        agents, batch, slots, width = messages_NBSm.shape
        flat = messages_NBSm.transpose(1, 2).reshape(agents * slots, batch, width)
        if self.ragged:
            neutral = float("-inf") if pooling == "max" else 0.0
            flat = torch.cat([flat, flat.new_full((1, batch, width), neutral)])
        incoming = flat.index_select(0, self.table.flatten()).view(*self.table.shape, batch, width)
        if pooling == "max":
            pooled = incoming.amax(dim=1)
            if self.ragged:
                pooled = pooled.masked_fill(self.silent, 0.0)
        else:
            pooled = incoming.sum(dim=1) / self.degree
        if not self.by_slot:
            return pooled
        return pooled.view(agents, slots, batch, width).transpose(1, 2).flatten(2)


@lru_cache(maxsize=64)
def mailboxes_on(device: torch.device, graph: AgentGraph, by_slot: bool) -> Mailboxes:
    """Return the mailboxes of a graph that lies on ``device``; the same object for the same graph."""
    with torch.inference_mode(False):  # the cached index tensors must also serve training
        return Mailboxes(graph, by_slot)


class RecurrentMPNN(nn.Module):
    r"""Gated recurrent message passing between the agents.

    .. math::
        m_{j,s} &= W_s\,\text{hidden}_j + b_s, \qquad a_i = W_a\,\mathrm{pool}_{(j,s) \to i}\, m_{j,s} \\
        u &= \mathrm{Dense}[\mathrm{RMSNorm}(a), \mathrm{RMSNorm}(h)], \qquad
        (r, g) = \sigma(\mathrm{Dense}(\mathrm{RMSNorm}[\text{hidden}, u])) \\
        \text{hidden} &\leftarrow (1 - g)\tanh(\mathrm{Dense}(\mathrm{RMSNorm}[r \odot \text{hidden}, u])) + g\,\text{hidden}

    from :math:`\text{hidden}_0 = \mathrm{Dense}(h)`. A message is typed by the slot s at its *source*. With
    ``routing="receiver"``, the kind that was released with Sheaf-ADMM, all incoming messages are pooled into one vector, so that
    on Sudoku an agent cannot know which of its cells a message is about. With ``"receiver_slot"`` they are pooled per receiving
    slot and concatenated, which gives the baseline the same knowledge as the sheaf's adjoint.

    Args:
        num_slots: number of slots S of the graphs.
        state_dim: length d of an agent's state.
        message_dim: length of a message.
        pooling: "max" or "mean".
        routing: "receiver" or "receiver_slot".

    Source: Sheaf-ADMM (arXiv 2605.31005), appendix on baselines and released configuration; ``receiver_slot`` is ours.
    """

    def __init__(
        self,
        num_slots: int,
        state_dim: int,
        message_dim: int = 32,
        pooling: Pooling = "max",
        routing: Routing = "receiver",
    ) -> None:
        super().__init__()
        if pooling not in ("max", "mean"):
            raise ValueError(f'pooling must be "max" or "mean", not {pooling!r}')
        if routing not in ("receiver", "receiver_slot"):
            raise ValueError(f'routing must be "receiver" or "receiver_slot", not {routing!r}')
        self.pooling, self.by_slot = pooling, routing == "receiver_slot"
        self.message_shape = (num_slots, message_dim)
        self.start = Dense(state_dim, state_dim)
        self.message_weight = nn.Parameter(torch.empty(num_slots * message_dim, state_dim))
        self.message_bias = nn.Parameter(torch.zeros(num_slots * message_dim))
        bound = (6 / (num_slots * (message_dim + state_dim))) ** 0.5
        nn.init.uniform_(self.message_weight, -bound, bound)
        pooled_dim = message_dim * (num_slots if self.by_slot else 1)
        self.receive = nn.Sequential(Dense(pooled_dim, state_dim, bias=False), nn.RMSNorm(state_dim, eps=NORM_EPS))
        self.context_norm = nn.RMSNorm(state_dim, eps=NORM_EPS)
        self.update = Dense(2 * state_dim, state_dim)
        self.gates = nn.Sequential(nn.RMSNorm(2 * state_dim, eps=NORM_EPS), Dense(2 * state_dim, 2 * state_dim))
        self.candidate = nn.Sequential(nn.RMSNorm(2 * state_dim, eps=NORM_EPS), Dense(2 * state_dim, state_dim))

    def forward(self, graph: AgentGraph, h_NBd: Tensor, steps: int, keep: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """Run ``steps`` rounds.

        Args:
            graph: who talks to whom; its slots are those of the network.
            h_NBd: encoder states, ``[N, B, d]``.
            steps: number of rounds; 0 returns the start.
            keep: rounds whose hidden states are wanted too.

        Returns:
            The last hidden state ``[N, B, d]`` and the kept ones by round.
        """
        mailboxes = mailboxes_on(h_NBd.device, graph, self.by_slot)
        context = self.context_norm(h_NBd)
        hidden = self.start(h_NBd)
        kept = {0: hidden} if 0 in keep else {}
        for k in range(1, steps + 1):
            hidden = self._round(mailboxes, hidden, context)
            if k in keep:
                kept[k] = hidden
        return hidden, kept

    def _round(self, mailboxes: Mailboxes, hidden: Tensor, context: Tensor) -> Tensor:
        """Exchange messages once and update all agents."""
        messages = nn.functional.linear(hidden, self.message_weight, self.message_bias).unflatten(-1, self.message_shape)
        news = self.update(torch.cat([self.receive(mailboxes.pool(messages, self.pooling)), context], dim=-1))
        reset, stay = self.gates(torch.cat([hidden, news], dim=-1)).sigmoid().chunk(2, dim=-1)
        candidate = self.candidate(torch.cat([reset * hidden, news], dim=-1)).tanh()
        return torch.lerp(candidate, hidden, stay)
