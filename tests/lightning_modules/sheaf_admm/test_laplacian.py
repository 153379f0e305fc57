import networkx
import pytest
import torch
from dense_coboundary import SAMPLES, check_against_matrix, close, flat, randn

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SheafLaplacian, SlotLaplacian

N, B = 5, SAMPLES
SIZES = [(2, 3), (12, 24)]


def multigraph(num_slots=4):
    """Agents 0 and 1 share three edges, one of them stored the other way round."""
    edge_index = torch.tensor([[0, 0, 1, 1, 3, 4, 2], [1, 1, 0, 2, 0, 3, 4]])
    slots = torch.randint(num_slots, (2, 7), generator=torch.Generator().manual_seed(1))
    return AgentGraph(edge_index, *slots, num_nodes=N, num_slots=num_slots)


@pytest.mark.parametrize("samples", [1, B])
@pytest.mark.parametrize(("edge_dim", "stalk_dim"), SIZES)
def test_generic_against_dense_coboundary(edge_dim, stalk_dim, samples):
    graph = multigraph()
    F_u, F_v = randn(2, graph.num_edges, samples, edge_dim, stalk_dim) / stalk_dim
    check_against_matrix(SheafLaplacian(graph, F_u, F_v))


@pytest.mark.parametrize("form", ["shared", "one map", "low rank", "one map, low rank", "per sample"])
@pytest.mark.parametrize(("edge_dim", "stalk_dim"), SIZES)
@pytest.mark.parametrize("kind", ["multigraph", "sudoku"])
def test_slot_forms_against_dense_coboundary(kind, edge_dim, stalk_dim, form):
    graph = multigraph() if kind == "multigraph" else AgentGraph.sudoku(2, 3)
    slots, rank = graph.num_slots, 2
    maps = randn(1 if "one map" in form else slots, edge_dim, stalk_dim) / stalk_dim
    low_rank = None
    if "low rank" in form:
        low_rank = (
            randn(graph.num_nodes, B, slots, edge_dim, rank, seed=5) / stalk_dim,
            randn(graph.num_nodes, B, slots, rank, stalk_dim, seed=6) / stalk_dim,
        )
    if form == "per sample":
        maps = randn(graph.num_nodes, B, slots, edge_dim, stalk_dim) / stalk_dim
    laplacian = (SlotLaplacian if kind == "multigraph" else CellLaplacian)(graph, maps, low_rank)
    check_against_matrix(laplacian)


def test_slot_maps_reach_the_right_ends():
    graph = multigraph()
    maps = randn(graph.num_slots, 2, 3)
    F_u, F_v = SlotLaplacian(graph, maps).edge_maps()
    for k in range(graph.num_edges):
        assert torch.equal(F_u[k, 0], maps[graph.slot_u[k]])
        assert torch.equal(F_v[k, 0], maps[graph.slot_v[k]])


def test_trivial_sheaf_is_the_graph_laplacian():
    graph, stalk_dim = multigraph(), 3
    reference = networkx.MultiGraph()
    reference.add_nodes_from(range(N))
    reference.add_edges_from(graph.edge_index.t().tolist())
    expected = torch.from_numpy(networkx.laplacian_matrix(reference).toarray()).double()
    identity = torch.eye(stalk_dim, dtype=torch.float64).expand(graph.num_edges, 1, -1, -1)
    expected = torch.kron(expected, torch.eye(stalk_dim, dtype=torch.float64))
    close(SheafLaplacian(graph, identity, identity).dense()[0], expected)
    close(SlotLaplacian(graph, identity[:1, 0]).dense()[0], expected)


def test_orientation_and_edge_frames_do_not_matter():
    graph = multigraph()
    F_u, F_v = randn(2, graph.num_edges, 1, 2, 3)
    z = randn(N, B, 3, seed=2)
    expected = SheafLaplacian(graph, F_u, F_v).matvec(z)

    flipped = torch.arange(graph.num_edges) % 2 == 0
    turned = AgentGraph(
        torch.where(flipped, graph.edge_index.flip(0), graph.edge_index),
        torch.where(flipped, graph.slot_v, graph.slot_u),
        torch.where(flipped, graph.slot_u, graph.slot_v),
        N,
        graph.num_slots,
    )
    mask = flipped[:, None, None, None]
    close(SheafLaplacian(turned, torch.where(mask, F_v, F_u), torch.where(mask, F_u, F_v)).matvec(z), expected)

    orthogonal = torch.linalg.qr(randn(graph.num_edges, 1, 2, 2, seed=4)).Q
    close(SheafLaplacian(graph, orthogonal @ F_u, orthogonal @ F_v).matvec(z), expected)
    assert (SheafLaplacian(graph, orthogonal @ F_u, F_v).matvec(z) - expected).abs().max() > 0.1


def test_relabelling_the_agents_permutes_the_product():
    graph = multigraph()
    F_u, F_v = randn(2, graph.num_edges, B, 2, 3)
    z = randn(N, B, 3, seed=2)
    new_name = torch.tensor([3, 0, 4, 1, 2])
    renamed = AgentGraph(new_name[graph.edge_index], graph.slot_u, graph.slot_v, N, graph.num_slots)
    z_renamed = torch.empty_like(z).index_copy_(0, new_name, z)
    close(SheafLaplacian(renamed, F_u, F_v).matvec(z_renamed)[new_name], SheafLaplacian(graph, F_u, F_v).matvec(z), 1e-12)


def test_change_of_stalk_basis_rotates_the_product():
    graph = multigraph()
    F_u, F_v = randn(2, graph.num_edges, 1, 2, 3)
    z = randn(N, B, 3, seed=2)
    P = torch.linalg.qr(randn(N, 3, 3, seed=4)).Q
    u, v = graph.edge_index
    rotated = SheafLaplacian(graph, F_u @ P[u, None].transpose(2, 3), F_v @ P[v, None].transpose(2, 3))
    close(rotated.matvec(z @ P.transpose(1, 2)), SheafLaplacian(graph, F_u, F_v).matvec(z) @ P.transpose(1, 2))


def selectors(side, edge_dim):
    return torch.eye(side * edge_dim, dtype=torch.float64).view(side, edge_dim, side * edge_dim)


@pytest.mark.parametrize(("box", "edge_dim"), [((2, 2), 2), ((2, 3), 1)])
def test_sudoku_selectors_have_eigenvalues_zero_and_three(box, edge_dim):
    graph = AgentGraph.sudoku(*box)
    side = graph.num_slots
    laplacian = CellLaplacian(graph, selectors(side, edge_dim))
    matrix = laplacian.dense()[0]
    eigenvalues = torch.linalg.eigvalsh(matrix)
    zero = eigenvalues.abs() < 1e-10
    assert int(zero.sum()) == side**2 * edge_dim
    close(eigenvalues[~zero], torch.full((2 * side**2 * edge_dim,), 3.0, dtype=torch.float64), 1e-10)

    rho, gamma = 0.4, 2.0
    v = randn(graph.num_nodes, B, side * edge_dim, seed=2)
    solved = torch.linalg.solve(rho * torch.eye(len(matrix)).double() + gamma * matrix, rho * flat(v).t()).t()
    copies = v.unflatten(-1, (side, edge_dim))
    mean = torch.zeros(side**2, B, edge_dim, dtype=torch.float64)
    mean.index_add_(0, graph.cell_index.flatten(), copies.transpose(1, 2).flatten(0, 1) / 3)
    m = mean[graph.cell_index].transpose(1, 2).flatten(2)
    close(solved, flat(m + rho / (rho + 3 * gamma) * (v - m)))
    close(laplacian.matvec(v), 3 * (v - m))


def test_one_cell_is_a_clique():
    graph = AgentGraph.sudoku(2, 2)
    matrix = CellLaplacian(graph, selectors(4, 1)).dense()[0]
    for cell in range(16):
        copies = (graph.cell_index.flatten() == cell).nonzero().flatten()
        close(matrix[copies][:, copies], 3 * torch.eye(3, dtype=torch.float64) - 1)
        assert (matrix[copies] != 0).sum() == 9


@pytest.mark.parametrize("box", [(2, 2), (2, 3), (3, 2), (3, 3)])
def test_cell_path_equals_generic_edges(box):
    graph = AgentGraph.sudoku(*box)
    maps = randn(graph.num_slots, 3, 3 * graph.num_slots).requires_grad_()
    z, weight = randn(2, graph.num_nodes, B, 3 * graph.num_slots, seed=2)
    z.requires_grad_()
    fast = CellLaplacian(graph, maps)
    slow = SheafLaplacian(graph, maps.unsqueeze(1)[graph.slot_u], maps.unsqueeze(1)[graph.slot_v])
    results = []
    for laplacian in (fast, slow):
        product = laplacian.matvec(z)
        gradients = torch.autograd.grad((product * weight).sum() + laplacian.energy(z).sum(), (z, maps))
        results.append((product, laplacian.energy(z), *gradients))
    for ours, generic in zip(*results, strict=True):
        close(ours, generic, 1e-10)


def test_masked_edges_stop_talking():
    graph = multigraph()
    maps = randn(graph.num_slots, 2, 3)
    z = randn(N, B, 3, seed=2)
    kept = torch.tensor([True, False, True, True, False, True, True])
    reduced = AgentGraph(graph.edge_index[:, kept], graph.slot_u[kept], graph.slot_v[kept], N, graph.num_slots)
    expected = SlotLaplacian(reduced, maps)
    F_u, F_v = SlotLaplacian(graph, maps).edge_maps()
    for laplacian in (
        SlotLaplacian(graph, maps, edge_mask=kept),
        SheafLaplacian(graph, F_u, F_v, kept),
        SlotLaplacian(graph, maps).with_edge_mask(kept),
        SheafLaplacian(graph, F_u, F_v, kept.double()[:, None].expand(-1, B)),
    ):
        close(laplacian.matvec(z), expected.matvec(z))
        close(laplacian.energy(z), expected.energy(z))
        close(laplacian.dense()[0], expected.dense()[0])
        assert (laplacian.delta(z)[~kept] == 0).all()
        assert (laplacian.delta(z)[kept] != 0).all()


def test_masks_multiply_and_may_differ_between_samples():
    graph = AgentGraph.sudoku(2, 2)
    laplacian = CellLaplacian(graph, randn(4, 2, 8))
    z = randn(graph.num_nodes, B, 8, seed=2)
    one = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(3)).double()
    per_sample = (randn(graph.num_edges, B, seed=4) > 0).double()
    masked = laplacian.with_edge_mask(one).with_edge_mask(per_sample)
    for b in range(B):
        alone = SlotLaplacian(graph, laplacian.maps, edge_mask=one * per_sample[:, b])
        close(masked.matvec(z)[:, b], alone.matvec(z)[:, b])
        close(masked.dense()[b], alone.dense()[0])


@pytest.mark.parametrize("kind", ["generic", "slot", "cell"])
def test_gradients(kind):
    graph = AgentGraph.sudoku(1, 2)
    z = randn(graph.num_nodes, 2, 3, seed=1).requires_grad_()
    maps = randn(2, 2, 3).requires_grad_()

    def product(maps, z):
        if kind == "generic":
            return SheafLaplacian(graph, maps.unsqueeze(1)[graph.slot_u], maps.unsqueeze(1)[graph.slot_v]).matvec(z)
        return (SlotLaplacian if kind == "slot" else CellLaplacian)(graph, maps).matvec(z)

    assert torch.autograd.gradcheck(product, (maps, z))


@pytest.mark.parametrize("cls", [SlotLaplacian, CellLaplacian])
def test_compiles_without_graph_breaks(cls):
    graph = AgentGraph.sudoku(2, 2)
    maps, z = randn(4, 2, 8), randn(graph.num_nodes, B, 8, seed=1)

    def product(maps, z):
        laplacian = cls(graph, maps)
        return laplacian.matvec(z), laplacian.energy(z)

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    for ours, expected in zip(compiled(maps, z), product(maps, z), strict=True):
        close(ours, expected)


def test_bad_input_is_refused():
    graph = AgentGraph.grid(2, 2)
    maps = torch.zeros(graph.num_edges, 1, 2, 3)
    with pytest.raises(ValueError, match=r"\[6, 1 or B, e, d\], got \[5, 1, 2, 3\]"):
        SheafLaplacian(graph, maps[:5], maps[:5])
    with pytest.raises(ValueError, match=r"edge_mask must have shape \[6\] or \[6, B\].*got \[5\]"):
        SheafLaplacian(graph, maps, maps, torch.ones(5))
    with pytest.raises(ValueError, match=r"edge_mask.*got \[4\]"):
        SlotLaplacian(graph, torch.zeros(8, 2, 3)).with_edge_mask(torch.ones(4))
    with pytest.raises(ValueError, match=r"\[8 or 1, e, d\].*got \[9, 2, 3\]"):
        SlotLaplacian(graph, torch.zeros(9, 2, 3))
    with pytest.raises(ValueError, match=r"got \[5, 1, 8, 2, 3\]"):
        SlotLaplacian(graph, torch.zeros(5, 1, 8, 2, 3))
    with pytest.raises(ValueError, match=r"low-rank factors.*\[4, B, 8\]"):
        SlotLaplacian(graph, torch.zeros(8, 2, 3), (torch.zeros(4, 1, 8, 2, 1), torch.zeros(4, 1, 7, 1, 3)))
    with pytest.raises(ValueError, match="AgentGraph.sudoku"):
        CellLaplacian(graph, torch.zeros(8, 2, 3))
