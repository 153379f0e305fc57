from types import SimpleNamespace

import pytest
import torch

from lightning_modules.sheaf_admm.graph import DIRECTIONS, AgentGraph


def columns(graph):
    """Each edge as (u, v, slot_u, slot_v), smaller agent first."""
    found = torch.stack([*graph.edge_index, graph.slot_u, graph.slot_v], dim=1).tolist()
    return sorted((u, v, s, t) if u < v else (v, u, t, s) for u, v, s, t in found)


@pytest.mark.parametrize(("side", "agents", "edges"), [(9, 81, 272), (18, 324, 1190), (36, 1296, 4970), (12, 144, 506), (1, 1, 0)])
def test_grid_counts(side, agents, edges):
    graph = AgentGraph.grid(side, side)
    assert (graph.num_nodes, graph.num_edges, graph.num_slots) == (agents, edges, 8)


@pytest.mark.parametrize(("connectivity", "squared_reach"), [(4, 1), (8, 2)])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4), (4, 1)])
def test_grid_joins_each_pair_of_neighbours_once(shape, connectivity, squared_reach):
    graph = AgentGraph.grid(*shape, connectivity=connectivity)
    points = [(row, column) for row in range(shape[0]) for column in range(shape[1])]
    expected = [
        (u, v)
        for v, (row, column) in enumerate(points)
        for u, (other_row, other_column) in enumerate(points[:v])
        if (row - other_row) ** 2 + (column - other_column) ** 2 <= squared_reach
    ]
    assert sorted((u, v) for u, v, _, _ in columns(graph)) == sorted(expected)


def test_grid_slot_is_the_direction_of_the_neighbour():
    graph = AgentGraph.grid(4, 3)
    offset = torch.tensor(list(DIRECTIONS.values()))
    u, v = graph.pos[graph.edge_index]
    assert torch.equal(u + offset[graph.slot_u], v)
    assert torch.equal(v + offset[graph.slot_v], u)
    assert list(DIRECTIONS) == ["N", "NE", "E", "SE", "S", "SW", "W", "NW"]


@pytest.mark.parametrize("box", [(2, 2), (2, 3), (3, 2), (3, 3), (1, 4)])
def test_sudoku_cells(box):
    graph = AgentGraph.sudoku(*box)
    side = box[0] * box[1]
    assert (graph.num_nodes, graph.num_edges, graph.num_slots) == (3 * side, 3 * side**2, side)
    board = torch.arange(side * side).view(side, side)
    boxes = [
        board[row : row + box[0], column : column + box[1]].flatten()
        for row in range(0, side, box[0])
        for column in range(0, side, box[1])
    ]
    assert torch.equal(graph.cell_index, torch.cat([board, board.t(), torch.stack(boxes)]))
    u, v = graph.edge_index
    assert torch.equal(graph.cell_index[u, graph.slot_u], graph.cell_index[v, graph.slot_v])
    cells = graph.cell_index[u, graph.slot_u]
    kinds = {
        (cell, agent // side, other // side) for cell, agent, other in zip(cells.tolist(), u.tolist(), v.tolist(), strict=True)
    }
    assert kinds == {(cell, *pair) for cell in range(side**2) for pair in ((0, 1), (0, 2), (1, 2))}


def test_sudoku_is_a_multigraph():
    graph = AgentGraph.sudoku(3, 3)
    assert (graph.num_nodes, graph.num_edges) == (27, 243)
    assert graph.edge_index.unique(dim=1).shape[1] == 135


def test_buffers_move_but_are_not_saved():
    holder = torch.nn.ModuleList([AgentGraph.sudoku(2, 2)]).to("meta")
    graph = holder[0]
    tensors = (graph.edge_index, graph.slot_u, graph.slot_v, graph.end_u, graph.end_v, graph.cell_index)
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert not holder.state_dict()
    assert graph.num_edges == 48


def test_only_sudoku_has_cells():
    with pytest.raises(ValueError, match="AgentGraph.sudoku"):
        _ = AgentGraph.grid(2, 2).cell_index


def test_from_pyg_halves_symmetric_edges():
    torch_geometric = pytest.importorskip("torch_geometric")
    once = torch.tensor([[0, 2, 1], [1, 0, 3]])
    data = torch_geometric.data.Data(edge_index=once, num_nodes=5, pos=torch.rand(5, 2))
    stored_once = AgentGraph.from_pyg(data)
    assert torch.equal(stored_once.edge_index, once)
    both_ways = AgentGraph.from_pyg(torch_geometric.transforms.ToUndirected()(data))
    assert columns(both_ways) == columns(stored_once) == [(0, 1, 0, 0), (0, 2, 0, 0), (1, 3, 0, 0)]
    assert (both_ways.num_nodes, both_ways.num_slots) == (5, 1)
    assert torch.equal(both_ways.pos, data.pos)


@pytest.mark.parametrize("graph", [AgentGraph.sudoku(2, 2), AgentGraph.grid(3, 4)], ids=["multigraph", "grid"])
def test_from_pyg_keeps_slots_and_parallel_edges(graph):
    edge_index = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
    order = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(0))
    data = SimpleNamespace(
        edge_index=edge_index[:, order],
        slot_u=torch.cat([graph.slot_u, graph.slot_v])[order],
        slot_v=torch.cat([graph.slot_v, graph.slot_u])[order],
        num_nodes=graph.num_nodes,
        num_slots=graph.num_slots,
    )
    assert columns(AgentGraph.from_pyg(data)) == columns(graph)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edge_index": torch.tensor([[0, 1, 1], [1, 0, 2]])}, "between agents 1 and 2; .*ToUndirected"),
        ({"edge_index": torch.empty(2, 0, dtype=torch.long)}, "no edge_index"),
        ({}, "no edge_index"),
        ({"edge_index": torch.tensor([[0], [1]]), "slot_u": torch.tensor([0])}, "both or neither"),
    ],
)
def test_from_pyg_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        AgentGraph.from_pyg(SimpleNamespace(num_nodes=3, **fields))


def index(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((index([0, 1]), index(0), index(0), 2, 1), r"shape \[2, E\]"),
        ((index([0], [1]).float(), index(0), index(0), 2, 1), "edge_index must be an int64"),
        ((index([0], [2]), index(0), index(0), 2, 1), r"edge_index must lie in 0\.\.1"),
        ((index([0], [-1]), index(0), index(0), 2, 1), r"edge_index must lie in 0\.\.1"),
        ((index([0], [1]), index(0, 0), index(0), 2, 1), "slot_u must have one entry per edge"),
        ((index([0], [1]), index(0), index(3), 2, 3), r"slot_v must lie in 0\.\.2, it spans 3\.\.3"),
        ((index([0, 1], [1, 1]), index(0, 0), index(0, 0), 2, 1), "edge 1 joins agent 1 with itself"),
        ((index([0], [1]), index(0), index(0), 2, 0), "one slot"),
        ((index([0], [1]), index(0), index(0), 2, 1, torch.zeros(3, 2)), "pos has 3 rows for 2 agents"),
    ],
)
def test_bad_edges_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AgentGraph(*arguments)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="0 x 3"):
        AgentGraph.grid(0, 3)
    with pytest.raises(ValueError, match="4 or 8, got 6"):
        AgentGraph.grid(3, 3, connectivity=6)
    with pytest.raises(ValueError, match="1 x 1"):
        AgentGraph.sudoku(1, 1)
