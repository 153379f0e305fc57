import pytest
import torch

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SheafLaplacian, SlotLaplacian
from lightning_modules.sheaf_admm.paired_laplacian import PairedLaplacian
from lightning_modules.sheaf_admm.restriction_maps import RestrictionMaps

B = 3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def with_live_heads(maps):
    """Fill every parameter, so that no head is zero."""
    for parameter in maps.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return maps.double()


def close(a, b, tolerance=1e-12):
    assert a.shape == b.shape
    assert (a - b).abs().max() < tolerance


@pytest.mark.parametrize(("kind", "count"), [("directional", 8), ("global", 1)])
def test_rows_start_orthonormal(kind, count):
    base = RestrictionMaps(kind, stalk_dim=10, edge_dim=5).base
    assert base.shape == (count, 5, 10)
    close(base @ base.transpose(1, 2), torch.eye(5).expand(count, -1, -1), 1e-5)
    if count > 1:
        assert (base[0] - base[1]).abs().max() > 0.1


def test_soft_slice_selects_the_block_of_its_slot():
    state = torch.arange(2.0 * 12).view(2, 12)
    exact = RestrictionMaps("sudoku", stalk_dim=12, edge_dim=3, num_slots=4, noise=0.0).base
    for slot in range(4):
        assert torch.equal(state @ exact[slot].t(), state[:, 3 * slot : 3 * slot + 3])
    noise = RestrictionMaps("sudoku", stalk_dim=288, edge_dim=32, num_slots=9).base - torch.eye(288).view(9, 32, 288)
    assert noise.std().item() == pytest.approx(0.01, rel=0.02)
    roomy = RestrictionMaps("sudoku", stalk_dim=20, edge_dim=3, num_slots=4, noise=0.0).base
    assert roomy.shape == (4, 3, 20)
    assert (roomy[..., 12:] == 0).all()


def test_identity_is_fixed_consensus():
    graph = AgentGraph.sudoku(2, 2)
    maps = RestrictionMaps("identity", stalk_dim=8, edge_dim=8, num_slots=4)
    assert not list(maps.parameters())
    assert not maps.state_dict()
    z = torch.randn(graph.num_nodes, B, 8)
    u, v = graph.edge_index
    close(maps(graph).delta(z), z[u] - z[v], 1e-6)
    close(maps(graph).energy(z), 0.5 * (z[u] - z[v]).square().sum((0, 2)), 1e-4)


def test_ends_use_the_map_of_their_direction():
    graph = AgentGraph.grid(2, 3)
    maps = RestrictionMaps("directional", stalk_dim=4, edge_dim=2)
    F_u, F_v = maps.maps(graph)
    assert F_u.shape == F_v.shape == (graph.num_edges, 1, 2, 4)
    east, west = 2, 6
    first = (graph.slot_u == east).nonzero()[0, 0]
    assert torch.equal(F_u[first, 0], maps.base[east])
    assert torch.equal(F_v[first, 0], maps.base[west])


@pytest.mark.parametrize("lora_init", ["standard", "legacy"])
@pytest.mark.parametrize(
    ("kind", "graph", "sizes"),
    [
        ("directional", AgentGraph.grid(3, 3), (10, 5, 8)),
        ("global", AgentGraph.grid(3, 3), (10, 5, 8)),
        ("sudoku", AgentGraph.sudoku(2, 2), (24, 5, 4)),
    ],
)
def test_zero_head_starts_from_the_fixed_maps(kind, graph, sizes, lora_init):
    maps = RestrictionMaps(kind, *sizes, feature_dim=6, lora_rank=2, lora_init=lora_init).double()
    fixed = SlotLaplacian(graph, maps.base)
    context, z = torch.randn(graph.num_nodes, B, 6).double(), torch.randn(graph.num_nodes, B, sizes[0]).double()
    product = maps(graph, context).matvec(z)
    close(product, fixed.matvec(z))
    product.square().sum().backward()
    zero, live = maps.left_head, maps.right_head
    if lora_init == "legacy":
        zero, live = live, zero
    assert (zero.weight == 0).all()
    assert zero.weight.grad.abs().max() > 0
    assert live.weight.abs().max() > 0
    assert (live.weight.grad == 0).all()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_low_rank_formula(norm, gated):
    graph = AgentGraph.grid(3, 2)
    maps = RestrictionMaps("global", 5, 3, feature_dim=6, lora_rank=2, lora_scale=0.7, norm=norm, gated=gated)
    maps = with_live_heads(maps)
    context = torch.randn(graph.num_nodes, B, 6, dtype=torch.float64)
    F_u, F_v = maps.maps(graph, context)
    assert F_u.shape == (graph.num_edges, B, 3, 5)
    k, b = 4, 1
    for F, agent, slot in zip((F_u, F_v), graph.edge_index[:, k], (graph.slot_u[k], graph.slot_v[k]), strict=True):
        f = context[agent, b]
        if norm == "layer":
            f = (f - f.mean()) / (f.var(unbiased=False) + 1e-6).sqrt() * maps.norm.weight + maps.norm.bias
        else:
            f = f / (f.square().mean() + 1e-6).sqrt() * maps.norm.weight
        A = (maps.left_head.weight @ f + maps.left_head.bias).view(8, 3, 2)[slot]
        B_transposed = (maps.right_head.weight @ f + maps.right_head.bias).view(8, 2, 5)[slot]
        gate = torch.sigmoid(maps.gate_head.weight @ f + maps.gate_head.bias)[slot] if gated else 1.0
        close(F[k, b], maps.base[0] + 0.7 / 2 * gate * A @ B_transposed)


@pytest.mark.parametrize(("rank", "factored"), [(1, True), (4, False)])
@pytest.mark.parametrize(
    ("kind", "graph", "sizes"),
    [
        ("directional", AgentGraph.grid(3, 4), (10, 5, 8)),
        ("global", AgentGraph.grid(3, 4), (10, 5, 8)),
        ("directional", AgentGraph.sudoku(2, 2), (10, 5, 4)),
        ("sudoku", AgentGraph.sudoku(2, 2), (20, 5, 4)),
    ],
)
def test_factor_by_factor_equals_the_dense_maps(kind, graph, sizes, rank, factored):
    rank = rank if sizes[0] == 10 or factored else 5
    maps = with_live_heads(RestrictionMaps(kind, *sizes, feature_dim=6, lora_rank=rank))
    context, z = torch.randn(graph.num_nodes, B, 6).double(), torch.randn(graph.num_nodes, B, sizes[0]).double()
    laplacian = maps(graph, context)
    assert (laplacian.low_rank is not None) == factored
    dense = SheafLaplacian(graph, *maps.maps(graph, context))
    scale = dense.matvec(z).detach().abs().max()
    close(laplacian.delta(z) / scale, dense.delta(z) / scale)
    close(laplacian.matvec(z) / scale, dense.matvec(z) / scale)
    weight = torch.randn_like(z)
    gradients = [
        torch.autograd.grad((one.matvec(z) * weight).sum() / scale, list(maps.parameters()), retain_graph=True)
        for one in (laplacian, dense)
    ]
    for ours, expected in zip(*gradients, strict=True):
        close(ours, expected, 1e-10)


def test_global_shares_the_base_but_not_the_low_rank_part():
    graph = AgentGraph.grid(1, 2)
    maps = with_live_heads(RestrictionMaps("global", 5, 3, feature_dim=6, lora_rank=2))
    same_context = torch.randn(1, B, 6, dtype=torch.float64).expand(2, -1, -1)
    F_u, F_v = maps.maps(graph, same_context)
    assert (F_u - F_v).abs().max() > 0.01
    torch.nn.init.zeros_(maps.left_head.weight)
    torch.nn.init.zeros_(maps.left_head.bias)
    F_u, F_v = maps.maps(graph, same_context)
    assert torch.equal(F_u, F_v)


def test_fastest_form_is_chosen():
    sudoku, grid = AgentGraph.sudoku(2, 2), AgentGraph.grid(2, 2)
    maps = RestrictionMaps("sudoku", 8, 2, num_slots=4)
    assert type(maps(sudoku)) is CellLaplacian
    z, mask = torch.randn(12, B, 8), torch.arange(48) % 5 > 0
    masked = maps(sudoku, edge_mask=mask)
    assert type(masked) is SlotLaplacian
    close(masked.matvec(z), SheafLaplacian(sudoku, *maps.maps(sudoku), mask).matvec(z), 1e-5)
    directional = RestrictionMaps("directional", 4, 2)
    assert type(directional(grid)) is PairedLaplacian
    assert type(directional(grid, edge_mask=torch.ones(grid.num_edges))) is PairedLaplacian
    assert type(RestrictionMaps("global", 4, 2)(grid)) is PairedLaplacian
    parallel = AgentGraph(torch.tensor([[0, 0], [1, 1]]), *torch.zeros(2, 2, dtype=torch.long), num_nodes=2, num_slots=8)
    assert type(directional(parallel)) is SlotLaplacian


def test_parameter_counts():
    count = lambda maps: sum(parameter.numel() for parameter in maps.parameters())  # noqa: E731
    # base + LayerNorm(256) + heads with bias: the maps' share of the 181 859 parameters for mazes and 1 081 835 for MNIST
    assert count(RestrictionMaps("directional", 10, 5, feature_dim=256, lora_rank=4)) == 400 + 512 + 41120 + 82240
    assert count(RestrictionMaps("global", 32, 24, feature_dim=256, lora_rank=8)) == 768 + 512 + 394752 + 526336
    assert count(RestrictionMaps("sudoku", 288, 32, num_slots=9)) == 9 * 32 * 288


def test_one_checkpoint_serves_grids_of_any_size():
    small, large = AgentGraph.grid(2, 2), AgentGraph.grid(5, 4)
    maps = RestrictionMaps("directional", 4, 2)
    other = RestrictionMaps("directional", 4, 2)
    other.load_state_dict(maps.state_dict())
    assert maps(small).matvec(torch.randn(4, B, 4)).shape == (4, B, 4)
    assert torch.equal(other.maps(large)[0], maps.maps(large)[0])


def test_compiles_without_graph_breaks():
    graph = AgentGraph.grid(3, 3)
    maps = with_live_heads(RestrictionMaps("directional", 6, 3, feature_dim=5, lora_rank=1))
    context, z = torch.randn(9, B, 5).double(), torch.randn(9, B, 6).double()
    product = lambda context, z: maps(graph, context).matvec(z)  # noqa: E731
    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    close(compiled(context, z), product(context, z))
    ours, expected = (torch.autograd.grad(f(context, z).sum(), list(maps.parameters())) for f in (compiled, product))
    for a, b in zip(ours, expected, strict=True):
        close(a, b, 1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "free"}, "kind must be one of directional, global, sudoku, identity, got 'free'"),
        ({"lora_init": "zero"}, "lora_init must be one of standard, legacy"),
        ({"norm": "batch"}, "norm must be one of layer, rms"),
        ({"edge_dim": 0}, "positive"),
        ({"edge_dim": 9}, "edge_dim=9 exceeds stalk_dim=8.*allow_wide_edges"),
        ({"kind": "sudoku", "num_slots": 4, "edge_dim": 3}, "need stalk_dim >= 12, got 8"),
        ({"kind": "sudoku", "num_slots": 3, "edge_dim": 2}, "divisible by the side 3 .* got 8"),
        ({"kind": "identity"}, "edge_dim = stalk_dim, got 2 and 8"),
        ({"kind": "identity", "edge_dim": 8, "lora_rank": 1, "feature_dim": 4}, "fixed"),
        ({"lora_rank": -1}, "lora_rank"),
        ({"lora_rank": 2}, "needs feature_dim"),
        ({"gated": True}, "lora_rank > 0"),
    ],
)
def test_bad_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RestrictionMaps(**{"kind": "directional", "stalk_dim": 8, "edge_dim": 2, **arguments})


def test_wide_edges_are_allowed_on_request():
    base = RestrictionMaps("directional", 2, 4, allow_wide_edges=True).base
    close(base.transpose(1, 2) @ base, torch.eye(2).expand(8, -1, -1), 1e-5)


def test_bad_graph_or_context_is_refused():
    sudoku = AgentGraph.sudoku(2, 3)
    with pytest.raises(ValueError, match=r"\[6 or 1, e, d\].*got \[4, 2, 8\]"):
        RestrictionMaps("sudoku", 8, 2, num_slots=4)(sudoku)
    maps = RestrictionMaps("directional", 8, 2, num_slots=4, feature_dim=5, lora_rank=1)
    with pytest.raises(ValueError, match="made for 4 slots, the graph has 6"):
        maps(sudoku, torch.zeros(18, B, 5))
    graph = AgentGraph.sudoku(2, 2)
    with pytest.raises(ValueError, match="context: forward"):
        maps(graph)
    with pytest.raises(ValueError, match=r"\[12, B, 5\], got \[12, 3, 4\]"):
        maps(graph, torch.zeros(12, B, 4))
