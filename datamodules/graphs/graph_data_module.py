"""What the data modules of graphs share: one whole graph a step, or sampled neighbourhoods."""

from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from datamodules.base import BatchDataset, ExactDataLoader, LeydenDataModule
from datamodules.graphs.neighbourhoods import Neighbourhoods
from datamodules.graphs.neighbours import check_fan_outs
from datamodules.graphs.node_graph import STAGES, NodeGraph
from datamodules.graphs.whole_graph import WholeGraph


class GraphDataModule(LeydenDataModule):
    """Data module whose batches are ``torch_geometric.data.Data``; a subclass calls :meth:`use` in ``setup``.

    ================ ============================================================================================================
    attribute        what it holds
    ================ ============================================================================================================
    x                features, float32 (dense or sparse CSR) or complex64 ``[N, F]``
    y                labels, int64 ``[N]``
    edge_index       int64 ``[2, E]``, rows (source j, target i), sorted by target and then by source
    edge_phase       θ of the edge j -> i, float32 ``[E]``; only if the data have phases
    edge_direction   ``B_ij - B_ji`` of the edge j -> i, float32 ``[E]``, with ``B_ab = 1`` for a stored edge from a to b; only if
                     the data have directions
    train_mask, …    also ``val_mask`` and ``test_mask``: this process's share of the nodes of a stage, bool ``[N]``
    labelled_mask    all training nodes, bool ``[N]``
    loss_scale       factor of the mean loss over the share, such that averaged gradients are those of one process
    n_id             numbers of the nodes in the whole graph, int64 ``[n]``; only in sampled batches
    ================ ============================================================================================================

    Args:
        num_neighbors: in-neighbours that a node keeps at most, for each hop, -1 for all; None: every batch is the whole graph.
        batch_size: seed nodes of a global batch, with ``num_neighbors``; the whole graph has no use for it.
        num_workers: loader processes per rank, with ``num_neighbors``.
        seed: seed of the order and of the neighbours.

    Raises:
        ValueError: if ``num_neighbors`` is given without ``batch_size``, or has a number that is neither positive nor -1.
    """

    def __init__(
        self, num_neighbors: list[int] | None = None, batch_size: int | None = None, num_workers: int = 0, seed: int = 0
    ) -> None:
        if num_neighbors is None:
            super().__init__(batch_size=1, seed=seed)
        else:
            check_fan_outs(num_neighbors)
            if batch_size is None:
                raise ValueError(f"num_neighbors={num_neighbors} needs batch_size, the seed nodes of a step on all processes")
            super().__init__(batch_size, num_workers=num_workers, seed=seed)
        self.num_neighbors = num_neighbors
        self._on_device: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}
        self._whole: dict[tuple[int, int], WholeGraph] = {}

    def trainer_defaults(self) -> dict[str, Any]:
        """The samplers share the data out already, and with the whole graph an epoch is one step."""
        return super().trainer_defaults() | ({"log_every_n_steps": 1} if self.num_neighbors is None else {})

    def use(self, graph: NodeGraph, suites: dict[str, NodeGraph] | None = None) -> None:
        """Cut ``graph``, and each suite's graph for a test of its own, into batches."""
        self.train_set, self.val_set, self.test_set = self._batches(graph)
        self.test_suites = {name: self._batches(suite)[2] for name, suite in (suites or {}).items()}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move a batch; the tensors of a whole graph are moved to a device only once."""
        if self.num_neighbors is not None or device.type == "cpu" or not isinstance(batch, Data):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        return copy(batch).apply(lambda tensor: self._kept_on(device, tensor))

    def teardown(self, stage: str) -> None:
        """Let go of what was kept on the device."""
        self._on_device.clear()

    def _batches(self, graph: NodeGraph) -> list[Any]:
        """Return the datasets of the three stages; with the whole graph they are one."""
        if self.num_neighbors is None:
            return [self._whole_graph(graph)] * len(STAGES)
        return [Neighbourhoods(graph, stage, self.num_neighbors, self.seed) for stage in STAGES]

    def _whole_graph(self, graph: NodeGraph) -> WholeGraph:
        """Return the batch of a graph, the same one in training and test, so that what models remember of it serves both."""
        key = (id(graph), self._processes())  # the batch keeps the graph, so that no other takes its id
        if key not in self._whole:
            self._whole[key] = WholeGraph(graph, self._processes())
        return self._whole[key]

    def _kept_on(self, device: torch.device, tensor: Tensor) -> Tensor:
        key = (id(tensor), device)  # the tensor is kept as well, so that no other takes its id
        if key not in self._on_device:
            self._on_device[key] = (tensor, tensor.to(device))
        return self._on_device[key][1]

    def _processes(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    def _loader(self, dataset: BatchDataset, batch_size: int, training: bool = False) -> ExactDataLoader:
        if self.num_neighbors is not None:
            return super()._loader(dataset, batch_size, training)
        loader = super()._loader(dataset, self._processes(), training)
        loader.pin_memory = False  # it would copy the whole graph at every step
        return loader
