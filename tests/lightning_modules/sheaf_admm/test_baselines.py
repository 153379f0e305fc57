import pytest
import torch
from torch import Tensor

from lightning_modules.sheaf_admm.baselines import Mailboxes, RecurrentMPNN
from lightning_modules.sheaf_admm.graph import AgentGraph

KINDS = [("max", "receiver"), ("mean", "receiver"), ("max", "receiver_slot"), ("mean", "receiver_slot")]


def directed_ends(graph: AgentGraph) -> list[tuple[int, int, int, int]]:
    """Source, its slot, receiver, its slot of every message."""
    (us, vs), slots_u, slots_v = graph.edge_index.tolist(), graph.slot_u.tolist(), graph.slot_v.tolist()
    ends = list(zip(us, slots_u, vs, slots_v, strict=True))
    return ends + [(v, sv, u, su) for u, su, v, sv in ends]


def pool_by_loop(graph: AgentGraph, messages: Tensor, pooling: str, routing: str) -> Tensor:
    slots = graph.num_slots if routing == "receiver_slot" else 1
    agents, batch, _, width = messages.shape
    pooled = torch.zeros(agents, batch, slots, width, dtype=messages.dtype)
    for agent in range(agents):
        for slot in range(slots):
            incoming = [
                messages[source, :, source_slot]
                for source, source_slot, receiver, receiver_slot in directed_ends(graph)
                if receiver == agent and (slots == 1 or receiver_slot == slot)
            ]
            if incoming:
                stacked = torch.stack(incoming)
                pooled[agent, :, slot] = stacked.amax(0) if pooling == "max" else stacked.mean(0)
    return pooled.flatten(2)


@pytest.mark.parametrize(("pooling", "routing"), KINDS)
@pytest.mark.parametrize("graph", [AgentGraph.grid(3, 2), AgentGraph.sudoku(2, 2)], ids=["grid", "sudoku"])
def test_pooling_equals_a_loop_over_edges(graph, pooling, routing):
    messages = torch.randn(graph.num_nodes, 2, graph.num_slots, 3, dtype=torch.float64) - 5.0
    expected = pool_by_loop(graph, messages, pooling, routing)
    assert torch.allclose(
        Mailboxes(graph, by_slot=routing == "receiver_slot").pool(messages, pooling), expected, atol=1e-12, rtol=0
    )


def normalised(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize(("pooling", "routing"), KINDS)
def test_a_round_is_the_stated_formula(pooling, routing):
    torch.manual_seed(0)
    graph = AgentGraph.sudoku(2, 2)
    mpnn = RecurrentMPNN(4, state_dim=8, message_dim=3, pooling=pooling, routing=routing).double()
    h = torch.randn(12, 2, 8, dtype=torch.float64)
    weight = dict(mpnn.named_parameters())

    hidden = h @ weight["start.weight"].T
    for _ in range(2):
        messages = torch.stack([hidden @ W.T for W in weight["message_weight"].view(4, 3, 8)], dim=2)
        received = pool_by_loop(graph, messages, pooling, routing) @ weight["receive.0.weight"].T
        news = torch.cat([normalised(received), normalised(h)], -1) @ weight["update.weight"].T
        gates = normalised(torch.cat([hidden, news], -1)) @ weight["gates.1.weight"].T
        reset, keep = gates[..., :8].sigmoid(), gates[..., 8:].sigmoid()
        candidate = (normalised(torch.cat([reset * hidden, news], -1)) @ weight["candidate.1.weight"].T).tanh()
        hidden = (1 - keep) * candidate + keep * hidden
    last, kept = mpnn(graph, h, steps=2, keep=[0, 2])
    assert torch.allclose(last, hidden, atol=1e-12, rtol=0)
    assert torch.equal(kept[2], last)
    assert torch.equal(kept[0], mpnn(graph, h, steps=0)[0])
    assert torch.allclose(kept[0], h @ weight["start.weight"].T)


def relabel_own_slots(graph: AgentGraph, agent: int, permutation: Tensor) -> AgentGraph:
    """The same edges, but one agent's ends arrive at other slots."""
    slots = [
        torch.where(ends == agent, permutation[slot], slot)
        for ends, slot in zip(graph.edge_index, (graph.slot_u, graph.slot_v), strict=True)
    ]
    return AgentGraph(graph.edge_index, *slots, graph.num_nodes, graph.num_slots)


@pytest.mark.parametrize(("pooling", "routing"), KINDS)
def test_only_the_slot_routed_kind_knows_which_cell_a_message_is_about(pooling, routing):
    graph = AgentGraph.sudoku(2, 2)
    relabelled = relabel_own_slots(graph, agent=5, permutation=torch.tensor([2, 3, 1, 0]))
    mpnn = RecurrentMPNN(4, 8, message_dim=3, pooling=pooling, routing=routing).double()
    h = torch.randn(12, 2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, other = (mpnn(g, h, steps=1)[0][5] for g in (graph, relabelled))
    if routing == "receiver":
        assert torch.allclose(one, other, atol=1e-12, rtol=0)
    else:
        assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize(("pooling", "routing"), KINDS)
def test_news_travels_one_hop_a_round(pooling, routing):
    torch.manual_seed(0)
    mpnn = RecurrentMPNN(8, state_dim=8, message_dim=4, pooling=pooling, routing=routing).double()
    h = torch.randn(6, 1, 8, dtype=torch.float64, requires_grad=True)
    for steps in range(4):
        (gradient,) = torch.autograd.grad(mpnn(AgentGraph.grid(1, 6), h, steps)[0][0].sum(), h)
        influence = gradient.abs().amax(dim=(1, 2))
        assert (influence[: steps + 1] > 0).all()
        assert not influence[steps + 1 :].any()


def test_message_weights_start_within_their_bound():
    mpnn = RecurrentMPNN(9, state_dim=36, message_dim=8)
    bound = (6 / (9 * (8 + 36))) ** 0.5
    largest = mpnn.message_weight.abs().max().item()
    assert 0.98 * bound < largest <= bound


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match='"max" or "mean", not \'sum\''):
        RecurrentMPNN(8, 4, pooling="sum")
    with pytest.raises(ValueError, match="receiver_slot"):
        RecurrentMPNN(8, 4, routing="sender")
