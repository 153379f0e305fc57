"""The communication graph of the agents: an undirected multigraph whose edge ends are typed by slots.

Legend: N agents, E edges, S slots.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import LongTensor, Tensor, nn

DIRECTIONS = {
    "N": (-1, 0),
    "NE": (-1, 1),
    "E": (0, 1),
    "SE": (1, 1),
    "S": (1, 0),
    "SW": (1, -1),
    "W": (0, -1),
    "NW": (-1, -1),
}
_STORED_DIRECTIONS = {4: ("E", "S"), 8: ("E", "S", "SE", "SW")}


class AgentGraph(nn.Module):
    """Undirected multigraph of agents, each edge stored once with a fixed orientation ``u -> v``.

    A *slot* is the type of an edge end, seen from the agent that owns the end: the direction of the neighbour on a
    grid, the position of the shared cell in a Sudoku agent's view. Restriction maps are shared per slot. Parallel
    edges are allowed, self-loops are not. The tensors are non-persistent buffers: they move with the module that
    holds the graph and stay out of checkpoints.

    Args:
        edge_index: agents at both ends ``(u, v)`` of each edge, ``[2, E]``, long.
        slot_u: slot of the end at ``u``, ``[E]``, long.
        slot_v: slot of the end at ``v``, ``[E]``, long.
        num_nodes: number of agents N.
        num_slots: number of slots S.
        pos: optional coordinates of the agents, ``[N, k]``, for drawing.

    Raises:
        ValueError: if shapes, dtypes or index ranges do not fit, or an edge is a self-loop.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3.
    """

    edge_index: LongTensor
    slot_u: LongTensor
    slot_v: LongTensor
    end_u: LongTensor
    end_v: LongTensor
    partner: LongTensor | None
    pos: Tensor | None
    _cell_index: LongTensor | None

    def __init__(
        self,
        edge_index: Tensor,
        slot_u: Tensor,
        slot_v: Tensor,
        num_nodes: int,
        num_slots: int,
        pos: Tensor | None = None,
    ) -> None:
        super().__init__()
        _check_edges(edge_index, slot_u, slot_v, num_nodes, num_slots)
        if pos is not None and pos.shape[0] != num_nodes:
            raise ValueError(f"pos has {pos.shape[0]} rows for {num_nodes} agents: give one row per agent")
        self.num_nodes = num_nodes
        self.num_slots = num_slots
        self.box_shape: tuple[int, int] | None = None
        self.register_buffer("edge_index", edge_index, persistent=False)
        self.register_buffer("slot_u", slot_u, persistent=False)
        self.register_buffer("slot_v", slot_v, persistent=False)
        self.register_buffer("end_u", edge_index[0] * num_slots + slot_u, persistent=False)
        self.register_buffer("end_v", edge_index[1] * num_slots + slot_v, persistent=False)
        self.register_buffer("partner", self._partners(), persistent=False)
        self.register_buffer("pos", pos, persistent=False)
        self.register_buffer("_cell_index", None, persistent=False)

    def _partners(self) -> Tensor | None:
        """Row ``agent * num_slots + slot`` of the other end of each end's edge, its own row where there is no edge; None if
        some slot of some agent has several edges."""
        ends, others = torch.cat([self.end_u, self.end_v]), torch.cat([self.end_v, self.end_u])
        if len(ends.unique()) < len(ends):
            return None
        partner = torch.arange(self.num_nodes * self.num_slots, device=ends.device)
        partner[ends] = others
        return partner

    def edges_between(self, present: Tensor) -> Tensor:
        """Return the edge mask that is 1 where both agents are present; ``[N]`` gives ``[E]`` and ``[N, B]`` gives ``[E, B]``."""
        u, v = self.edge_index
        return (present[u] & present[v]).to(torch.get_default_dtype())

    @property
    def num_edges(self) -> int:
        """Number of stored edges E; each undirected edge counts once."""
        return self.edge_index.shape[1]

    @property
    def cell_index(self) -> LongTensor:
        """Row-major board cell that each slot of each Sudoku agent sees, ``[3 * side, side]``.

        Raises:
            ValueError: if the graph was not made by :meth:`sudoku`.
        """
        if self._cell_index is None:
            raise ValueError("only a Sudoku graph has cells: build it with AgentGraph.sudoku(box_rows, box_cols)")
        return self._cell_index

    def extra_repr(self) -> str:
        return f"num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_slots={self.num_slots}"

    @classmethod
    def grid(cls, height: int, width: int, connectivity: int = 8) -> AgentGraph:
        """Connect the agents of a ``height x width`` lattice, numbered row by row, with their neighbours.

        The slot of an end is the direction of its neighbour, counted N, NE, E, SE, S, SW, W, NW. All E edges are stored
        first, then S, SE and SW (E and S only for ``connectivity=4``), so that each pair occurs once.

        Args:
            height: rows of agents.
            width: columns of agents.
            connectivity: 8, or 4 for no diagonals (the slots keep their numbers).

        Raises:
            ValueError: if a side is below 1 or the connectivity is neither 4 nor 8.
        """
        if height < 1 or width < 1:
            raise ValueError(f"a grid needs height and width of at least 1, got {height} x {width}")
        if connectivity not in _STORED_DIRECTIONS:
            raise ValueError(f"connectivity must be 4 or 8, got {connectivity}")
        agent = torch.arange(height * width).view(height, width)
        slot_of = {name: slot for slot, name in enumerate(DIRECTIONS)}
        edges, slots = [], []
        for name in _STORED_DIRECTIONS[connectivity]:
            down, right = DIRECTIONS[name]
            here = agent[: height - down, max(-right, 0) : width - max(right, 0)]
            there = agent[down:, max(right, 0) : width - max(-right, 0)]
            edges.append(torch.stack([here.flatten(), there.flatten()]))
            forward = slot_of[name]
            slots.append(torch.tensor([[forward], [(forward + 4) % 8]]).expand(2, here.numel()))
        slot_u, slot_v = torch.cat(slots, dim=1)
        pos = torch.stack([agent.flatten() // width, agent.flatten() % width], dim=1).float()
        return cls(torch.cat(edges, dim=1), slot_u, slot_v, height * width, len(DIRECTIONS), pos)

    @classmethod
    def sudoku(cls, box_rows: int, box_cols: int) -> AgentGraph:
        """Connect the row, column and box agents of a Sudoku that share a cell.

        With ``side = box_rows * box_cols`` there are ``3 * side`` agents (rows, then columns, then boxes in reading
        order) and one 3-clique per cell: row-column, row-box and column-box edges, each group in row-major order of
        the cells. A slot is the position of the cell in the agent's view; a box is read row by row. Agents that share
        several cells are joined by parallel edges.

        Args:
            box_rows: rows of one box.
            box_cols: columns of one box.

        Raises:
            ValueError: if a side of the box is below 1, or the board has a single cell.
        """
        if box_rows < 1 or box_cols < 1 or box_rows * box_cols < 2:
            raise ValueError(f"a Sudoku box needs at least 1 x 2 cells, got {box_rows} x {box_cols}")
        side = box_rows * box_cols
        cell = torch.arange(side * side)
        row, column = cell // side, cell % side
        box = row // box_rows * box_rows + column // box_cols
        place = row % box_rows * box_cols + column % box_cols
        agents = torch.stack([row, side + column, 2 * side + box])
        slots = torch.stack([column, row, place])
        first, second = [0, 0, 1], [1, 2, 2]
        graph = cls(
            torch.stack([agents[first].flatten(), agents[second].flatten()]),
            slots[first].flatten(),
            slots[second].flatten(),
            num_nodes=3 * side,
            num_slots=side,
        )
        cell_index = torch.empty(3 * side, side, dtype=torch.long)
        cell_index[agents, slots] = cell
        graph.register_buffer("_cell_index", cell_index, persistent=False)
        graph.box_shape = (box_rows, box_cols)
        return graph

    @classmethod
    def from_pyg(cls, data: Any) -> AgentGraph:
        """Read a ``torch_geometric.data.Data`` object.

        ``edge_index`` may hold each undirected edge once, or in both directions (PyG's usual form; the copy with ``u
        < v`` is kept). Optional fields: ``slot_u`` and ``slot_v`` (``[E]``, slots at the source and the target of
        each column; the reverse of a column has them swapped), ``num_slots`` (default: largest slot + 1) and ``pos``.
        Without slots all ends have slot 0.

        Args:
            data: the PyG graph; only its attributes are read.

        Raises:
            ValueError: if there are no edges, if only one of the slot fields is there, or if some edges come in both
                directions and some in one.
        """
        edge_index = getattr(data, "edge_index", None)
        if edge_index is None or edge_index.numel() == 0:
            raise ValueError("the PyG graph has no edge_index: agents without edges cannot coordinate")
        slot_u, slot_v = getattr(data, "slot_u", None), getattr(data, "slot_v", None)
        if (slot_u is None) != (slot_v is None):
            raise ValueError("the PyG graph has only one of slot_u and slot_v: give both or neither")
        if slot_u is None or slot_v is None:
            slot_u, slot_v = torch.zeros_like(edge_index)
        num_slots = getattr(data, "num_slots", None)
        if num_slots is None:
            num_slots = int(torch.cat([slot_u, slot_v]).max()) + 1
        kept = _stored_once(edge_index, slot_u, slot_v)
        pos = getattr(data, "pos", None)
        return cls(edge_index[:, kept], slot_u[kept], slot_v[kept], data.num_nodes, num_slots, pos)


@lru_cache(maxsize=64)
def grid_on(device: torch.device, height: int, width: int, connectivity: int = 8) -> AgentGraph:
    """Return the grid of :meth:`AgentGraph.grid` on a device; the same object for the same arguments."""
    with torch.inference_mode(False):  # the cached index tensors must also serve training
        return AgentGraph.grid(height, width, connectivity).to(device)


def _stored_once(edge_index: Tensor, slot_u: Tensor, slot_v: Tensor) -> Tensor:
    """Select the columns to keep: those with ``u < v`` if each edge comes in both directions, all if none does."""
    columns = torch.stack([edge_index[0], edge_index[1], slot_u, slot_v])
    ascending = columns[0] < columns[1]
    canonical = torch.where(ascending, columns, columns[[1, 0, 3, 2]])
    _, edge = canonical.unique(dim=1, return_inverse=True)
    size = int(edge.max()) + 1
    forward = torch.bincount(edge[ascending], minlength=size)
    backward = torch.bincount(edge[~ascending], minlength=size)
    if torch.equal(forward, backward):
        return ascending
    if bool(((forward == 0) | (backward == 0)).all()):
        return torch.ones_like(ascending)
    broken = canonical[:2, edge == ((forward != backward) & (forward + backward > 0)).nonzero()[0]][:, 0].tolist()
    raise ValueError(
        f"edge_index is neither symmetric nor stored once: see the edge between agents {broken[0]} and {broken[1]}; "
        "apply torch_geometric.transforms.ToUndirected first"
    )


def _check_edges(edge_index: Tensor, slot_u: Tensor, slot_v: Tensor, num_nodes: int, num_slots: int) -> None:
    """Refuse edges that do not describe a typed multigraph on the agents."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index must have shape [2, E], got {list(edge_index.shape)}")
    if num_nodes < 1 or num_slots < 1:
        raise ValueError(f"a graph needs at least one agent and one slot, got {num_nodes} agents and {num_slots} slots")
    named = {"edge_index": (edge_index, num_nodes), "slot_u": (slot_u, num_slots), "slot_v": (slot_v, num_slots)}
    for name, (index, size) in named.items():
        if index.dtype != torch.long:
            raise ValueError(f"{name} must be an int64 tensor, got {index.dtype}")
        if index.shape[-1:] != edge_index.shape[1:] or (name != "edge_index" and index.dim() != 1):
            raise ValueError(f"{name} must have one entry per edge ({edge_index.shape[1]}), got shape {list(index.shape)}")
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
            raise ValueError(f"{name} must lie in 0..{size - 1}, it spans {int(index.min())}..{int(index.max())}")
    loops = (edge_index[0] == edge_index[1]).nonzero()
    if len(loops):
        raise ValueError(f"edge {int(loops[0])} joins agent {int(edge_index[0, loops[0, 0]])} with itself: remove self-loops")
