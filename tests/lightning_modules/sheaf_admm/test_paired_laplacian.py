import pytest
import torch
from dense_coboundary import SAMPLES, check_against_matrix, close, randn
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import ToUndirected

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian, SlotLaplacian
from lightning_modules.sheaf_admm.paired_laplacian import PairedLaplacian

FORMS = ["shared", "one map", "low rank", "one map, low rank", "per sample"]


def ring_from_pyg() -> AgentGraph:
    """Five agents in a circle; slot 0 holds the next agent, slot 1 the one before, and slot 2 is empty."""
    here = torch.arange(5)
    both = torch.stack([torch.cat([here, (here + 1) % 5]), torch.cat([(here + 1) % 5, here])])
    slot_u = torch.cat([torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.long)])
    graph = AgentGraph.from_pyg(Data(edge_index=both, slot_u=slot_u, slot_v=1 - slot_u, num_slots=3, num_nodes=5))
    assert graph.num_edges == 5
    return graph


GRAPHS = {
    "grid": AgentGraph.grid(3, 4),
    "grid of 4 neighbours": AgentGraph.grid(4, 3, connectivity=4),
    "path": AgentGraph.grid(1, 5),
    "column": AgentGraph.grid(3, 1),
    "ring from PyG": ring_from_pyg(),
}


def parts(graph: AgentGraph, form: str, edge_dim: int = 2, stalk_dim: int = 3) -> dict[str, Tensor]:
    """Random maps of a form and its low-rank factors, by name."""
    agents, slots, rank = graph.num_nodes, graph.num_slots, 2
    if form == "per sample":
        return {"maps": randn(agents, SAMPLES, slots, edge_dim, stalk_dim) / stalk_dim}
    made = {"maps": randn(1 if "one map" in form else slots, edge_dim, stalk_dim) / stalk_dim}
    if "low rank" in form:
        made["A"] = randn(agents, SAMPLES, slots, edge_dim, rank, seed=5) / stalk_dim
        made["Bt"] = randn(agents, SAMPLES, slots, rank, stalk_dim, seed=6) / stalk_dim
    return made


def build(cls: type[SlotLaplacian], graph: AgentGraph, made: dict[str, Tensor], edge_mask: Tensor | None = None) -> SlotLaplacian:
    return cls(graph, made["maps"], (made["A"], made["Bt"]) if "A" in made else None, edge_mask)


def masks(graph: AgentGraph) -> dict[str, Tensor | None]:
    return {
        "none": None,
        "weights": 0.5 + randn(graph.num_edges, seed=7),
        "booleans": torch.arange(graph.num_edges) % 3 > 0,
        "of each sample": randn(graph.num_edges, SAMPLES, seed=8),
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", ["none", "weights", "booleans", "of each sample"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_against_dense_coboundary(kind, mask, form):
    graph = GRAPHS[kind]
    check_against_matrix(build(PairedLaplacian, graph, parts(graph, form), masks(graph)[mask]))


@pytest.mark.parametrize("form", FORMS)
def test_long_stalks_against_dense_coboundary(form):
    graph = GRAPHS["grid"]
    check_against_matrix(build(PairedLaplacian, graph, parts(graph, form, 12, 24), masks(graph)["of each sample"]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", ["none", "weights", "of each sample"])
@pytest.mark.parametrize("kind", ["grid", "ring from PyG"])
def test_gradients_equal_those_of_the_slot_form(kind, mask, form):
    graph, weight = GRAPHS[kind], masks(GRAPHS[kind])[mask]
    leaves = {**parts(graph, form), "z": randn(graph.num_nodes, SAMPLES, 3, seed=2)}
    if weight is not None:
        leaves["mask"] = weight
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    direction = randn(graph.num_nodes, SAMPLES, 3, seed=9)
    gradients = []
    for cls in (PairedLaplacian, SlotLaplacian):
        laplacian = build(cls, graph, leaves, leaves.get("mask"))
        z = laplacian.arranged(leaves["z"])
        scalar = (laplacian.matvec(laplacian.matvec(z)) * direction).sum() + laplacian.matvec(z).square().sum()
        gradients.append(torch.autograd.grad(scalar, list(leaves.values())))
    for name, ours, expected in zip(leaves, *gradients, strict=True):
        size = expected.abs().max()
        assert size > 1e-3, name
        close(ours / size, expected / size)


def test_gradcheck():
    graph = AgentGraph.grid(2, 2)
    leaves = [leaf.requires_grad_() for leaf in (*parts(graph, "low rank").values(), randn(4, SAMPLES, 3, seed=2))]
    assert torch.autograd.gradcheck(lambda maps, A, Bt, z: PairedLaplacian(graph, maps, (A, Bt)).matvec(z), leaves)


def test_arranged_states_have_agents_and_batch_innermost_and_stay_so():
    graph = GRAPHS["grid"]
    z = randn(graph.num_nodes, SAMPLES, 3, seed=2)
    for form in FORMS:
        laplacian = build(PairedLaplacian, graph, parts(graph, form))
        arranged = laplacian.arranged(z)
        assert torch.equal(arranged, z)
        assert arranged.stride() == (SAMPLES, 1, graph.num_nodes * SAMPLES)
        product = laplacian.matvec(arranged)
        assert product.stride() == arranged.stride()
        close(product, laplacian.matvec(z))
        assert laplacian.arranged(arranged).data_ptr() == arranged.data_ptr()
        plain = build(SlotLaplacian, graph, parts(graph, form))
        assert plain.arranged(z) is z


def test_masks_multiply():
    graph, made = GRAPHS["grid"], parts(GRAPHS["grid"], "low rank")
    given = masks(graph)
    masked = build(PairedLaplacian, graph, made, given["weights"]).with_edge_mask(given["of each sample"])
    assert type(masked) is PairedLaplacian
    z = randn(graph.num_nodes, SAMPLES, 3, seed=2)
    for b in range(SAMPLES):
        both = given["weights"] * given["of each sample"][:, b]
        close(masked.matvec(z)[:, b], build(PairedLaplacian, graph, made, both).matvec(z)[:, b])
    check_against_matrix(masked)


def test_a_lonely_agent_has_no_disagreement():
    laplacian = PairedLaplacian(AgentGraph.grid(1, 1), randn(8, 2, 3))
    assert not laplacian.matvec(randn(1, SAMPLES, 3, seed=2)).any()
    assert not laplacian.with_edge_mask(torch.ones(0)).matvec(randn(1, SAMPLES, 3, seed=2)).any()


@pytest.mark.parametrize("form", FORMS)
def test_relabelled_agents_permute_the_product(form):
    graph = GRAPHS["grid"]
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    renamed = AgentGraph(order.argsort()[graph.edge_index], graph.slot_u, graph.slot_v, graph.num_nodes, graph.num_slots)
    made = parts(graph, form)
    moved = {name: leaf[order] if leaf.dim() == 5 else leaf for name, leaf in made.items()}
    z = randn(graph.num_nodes, SAMPLES, 3, seed=2)
    ours = build(PairedLaplacian, renamed, moved, masks(graph)["weights"]).matvec(z[order])
    close(ours, build(PairedLaplacian, graph, made, masks(graph)["weights"]).matvec(z)[order])


def test_one_map_on_a_path_by_hand():
    z = torch.tensor([1.0, 4.0, 6.0]).double().view(3, 1, 1)
    product = PairedLaplacian(AgentGraph.grid(1, 3), torch.full((1, 1, 1), 2.0).double()).matvec(z)
    assert product.flatten().tolist() == [4 * (1 - 4), 4 * (2 * 4 - 1 - 6), 4 * (6 - 4)]
    halved = PairedLaplacian(AgentGraph.grid(1, 3), torch.full((1, 1, 1), 2.0).double(), edge_mask=torch.tensor([1.0, 0.5]))
    assert halved.matvec(z).flatten().tolist() == [4 * (1 - 4), 4 * (4 - 1 + 0.25 * (4 - 6)), 4 * 0.25 * (6 - 4)]


def test_east_meets_west():
    maps = torch.zeros(8, 1, 1).double()
    maps[2], maps[6] = 3.0, 5.0
    z = torch.tensor([1.0, 2.0]).double().view(2, 1, 1)
    product = PairedLaplacian(AgentGraph.grid(1, 2), maps).matvec(z)
    assert product.flatten().tolist() == [3 * (3 * 1 - 5 * 2), 5 * (5 * 2 - 3 * 1)]


def test_other_graphs_are_refused():
    with pytest.raises(ValueError, match="at most one edge a slot, as on a grid; SlotLaplacian takes any graph"):
        PairedLaplacian(AgentGraph.sudoku(2, 2), torch.zeros(4, 2, 3))
    parallel = AgentGraph(torch.tensor([[0, 0], [1, 1]]), torch.tensor([0, 0]), torch.tensor([0, 1]), num_nodes=2, num_slots=2)
    with pytest.raises(ValueError, match="at most one edge a slot"):
        PairedLaplacian(parallel, torch.zeros(2, 2, 3))
    undirected = ToUndirected()(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
    with pytest.raises(ValueError, match="at most one edge a slot"):
        PairedLaplacian(AgentGraph.from_pyg(undirected), torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match=r"\[8 or 1, e, d\].*got \[7, 2, 3\]"):
        PairedLaplacian(AgentGraph.grid(2, 2), torch.zeros(7, 2, 3))
    with pytest.raises(ValueError, match=r"edge_mask must have shape \[6\]"):
        PairedLaplacian(AgentGraph.grid(2, 2), torch.zeros(8, 2, 3), edge_mask=torch.ones(5))


def test_the_grid_form_equals_generic_edges():
    graph, made = GRAPHS["grid"], parts(GRAPHS["grid"], "low rank")
    paired, z = build(PairedLaplacian, graph, made), randn(graph.num_nodes, SAMPLES, 3, seed=2)
    full = made["maps"] + made["A"] @ made["Bt"]
    generic = SheafLaplacian(
        graph, *(full[end, :, slot] for end, slot in zip(graph.edge_index, (graph.slot_u, graph.slot_v), strict=True))
    )
    close(paired.matvec(z), generic.matvec(z))
