"""Graphs of some ten nodes, and the data module that hands them out whole."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.utils import add_self_loops, remove_self_loops, to_undirected


def small_graph(
    nodes: int = 30, features: int = 12, classes: int = 3, links: int = 50, seed: int = 0, complex_features: bool = False
) -> Data:
    """A random graph as the data modules give it, with noisy class means as features; complex ones have a random gauge."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=g)
    edges = remove_self_loops(to_undirected(torch.randint(nodes, (2, links), generator=g), num_nodes=nodes))[0]
    edges = add_self_loops(edges, num_nodes=nodes)[0]
    edges = edges[:, (edges[1] * nodes + edges[0]).argsort()]
    dtype = torch.complex64 if complex_features else torch.float32
    means = torch.randn(classes, features, generator=g, dtype=dtype)
    x = means[y] + torch.randn(nodes, features, generator=g, dtype=dtype)
    part = torch.randperm(nodes, generator=g)
    masks = [
        torch.isin(torch.arange(nodes), rows) for rows in part.split([nodes // 2, nodes // 4, nodes - nodes // 2 - nodes // 4])
    ]
    graph = Data(x=x, y=y, edge_index=edges, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])
    graph.labelled_mask, graph.loss_scale = masks[0].clone(), torch.tensor(1.0)
    up = edges[0] < edges[1]
    if complex_features:
        gauge = 2 * torch.pi * torch.rand(nodes, generator=g)
        graph.x = torch.exp(1j * gauge)[:, None] * x
        graph.edge_phase = gauge[edges[1]] - gauge[edges[0]]
    graph.edge_direction = up.float() - (edges[0] > edges[1]).float()
    return graph


class WholeGraph(LightningDataModule):
    """The same graph at every step of every stage."""

    def __init__(self, graph: Data, suites: Sequence[Data] = ()) -> None:
        super().__init__()
        self.graph, self.suites = graph, suites

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.graph)

    def val_dataloader(self) -> DataLoader:
        return self.train_dataloader()

    def test_dataloader(self) -> list[DataLoader]:
        return [self._loader(graph) for graph in (self.graph, *self.suites)]

    def predict_dataloader(self) -> DataLoader:
        return self.train_dataloader()

    def _loader(self, graph: Data) -> DataLoader:
        own_generator = torch.Generator()  # else every pass would draw from the global one
        return DataLoader([graph], batch_size=None, generator=own_generator)  # type: ignore[arg-type]


def quiet_trainer(folder: Any, epochs: int, **options: Any) -> Trainer:
    settings = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False) | options
    return Trainer(default_root_dir=folder, max_epochs=epochs, accelerator="cpu", log_every_n_steps=1, **settings)


def fitted(folder: Any, model: LightningModule, graph: Data, epochs: int, **options: Any) -> Trainer:
    trainer = quiet_trainer(folder, epochs, **options)
    trainer.fit(model, WholeGraph(graph))
    return trainer
