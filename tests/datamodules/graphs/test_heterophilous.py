from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from torch import nn

from datamodules import HeterophilousGraphDataModule
from datamodules.graphs.features import appnp_smoothing, in_sparse_rows, normalize_rows
from datamodules.graphs.prepare import prepare_edges, with_self_loops

NODES = 24


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Own files with two splits: ``own`` and, with the edges read as directed, ``own_directed``."""
    generator = np.random.default_rng(0)
    order = generator.permutation(NODES)
    masks = np.stack([[np.isin(np.arange(NODES), part) for part in np.split(np.roll(order, turn), [12, 18])] for turn in (0, 5)])
    arrays = {
        "node_features": generator.random((NODES, 3)).astype(np.float32),
        "node_labels": np.arange(NODES) % 4,
        "edges": np.array([[node, (node + step) % NODES] for node in range(NODES) for step in (1, 3, 7)]),
        **{f"{stage}_masks": masks[:, number] for number, stage in enumerate(("train", "val", "test"))},
    }
    np.savez(tmp_path / "own.npz", **arrays)
    np.savez(tmp_path / "own_directed.npz", **arrays)
    return str(tmp_path)


def ready(root: str, name: str = "own", **options) -> HeterophilousGraphDataModule:
    data = HeterophilousGraphDataModule(name, root=root, **options)
    data.prepare_data()
    data.setup("fit")
    return data


def test_one_graph_for_all_stages(root: str):
    data = ready(root)
    (train,), (val,), (test,), (predicted,) = (
        list(loader()) for loader in (data.train_dataloader, data.val_dataloader, data.test_dataloader, data.predict_dataloader)
    )
    for other in (val, test, predicted):
        assert other.keys() == train.keys()
        assert all(other[key] is train[key] for key in train.keys())  # noqa: SIM118
    assert [int(train[f"{stage}_mask"].sum()) for stage in ("train", "val", "test")] == [12, 6, 6]
    assert "edge_direction" not in train
    assert train.edge_index.shape == (2, 2 * 3 * NODES + NODES)
    assert data.model_arguments() == {"num_features": 3, "num_classes": 4, "complex_features": False}
    (second,) = ready(root, split=1).train_dataloader()
    assert not second.train_mask.equal(train.train_mask)


def test_directed(root: str):
    (plain,) = ready(root).train_dataloader()
    (data,) = ready(root, "own_directed").train_dataloader()
    assert data.edge_index.equal(plain.edge_index)
    (source, target), direction = data.edge_index, data.edge_direction
    step = (target - source) % NODES
    assert direction[step == 0].tolist() == [0] * NODES
    assert (direction[(step == 1) | (step == 3) | (step == 7)] == -1).all(), "stored from source to target: B_ji = 1"
    assert (direction[(step == NODES - 1) | (step == NODES - 3) | (step == NODES - 7)] == 1).all()
    (one_way,) = ready(root, "own_directed", undirected=False, self_loops=False).train_dataloader()
    assert one_way.edge_index.equal(data.edge_index[:, direction == -1])
    assert (one_way.edge_direction == -1).all()


def test_features(root: str):
    plain, normal, smooth, both = (
        next(iter(ready(root, **options).train_dataloader())).x
        for options in (
            {},
            {"normalize_features": True},
            {"preprop": "appnp", "self_loops": False},
            {"normalize_features": True, "preprop": "appnp"},
        )
    )
    looped = with_self_loops(prepare_edges(np.load(Path(root) / "own.npz")["edges"], NODES), NODES)
    assert normal.equal(normalize_rows(plain))
    assert not normal.equal(plain)
    torch.testing.assert_close(smooth, appnp_smoothing(plain, looped))
    torch.testing.assert_close(both, appnp_smoothing(normal, looped))


def test_training_and_test_see_the_same_tensors(root: str):
    data = ready(root)
    (train,) = data.train_dataloader()
    data.setup("test")
    (test,) = data.test_dataloader()
    assert all(test[key] is train[key] for key in train.keys())  # noqa: SIM118


def test_sparse_features(root: str):
    dense, data = ready(root), ready(root, sparse_features=True)
    (plain,), (train,), (val,) = dense.train_dataloader(), data.train_dataloader(), data.val_dataloader()
    assert train.x.layout == torch.sparse_csr
    assert train.x.to_dense().equal(plain.x)
    assert val.x is train.x, "made once"
    assert train.num_nodes == NODES
    assert train.num_features == 3
    moved = data.transfer_batch_to_device(train, torch.device("meta"), 0).x
    assert (moved.layout, moved.device.type) == (torch.sparse_csr, "meta")
    assert data.transfer_batch_to_device(val, torch.device("meta"), 0).x is moved
    assert data.transfer_batch_to_device(train, torch.device("cpu"), 0).x.to_dense().equal(plain.x)


def test_complex_features_are_not_made_sparse():
    with pytest.raises(ValueError, match=r"sparse_features needs real features, but they are torch.complex64: leave it out"):
        in_sparse_rows(torch.ones(2, 2, dtype=torch.complex64))


def test_random_split(root: str):
    one, again, other = (
        next(iter(ready(root, split="random", train_frac=0.5, val_frac=0.25, seed=seed).train_dataloader())) for seed in (0, 0, 1)
    )
    assert [int(one[f"{stage}_mask"].sum()) for stage in ("train", "val", "test")] == [12, 6, 6]
    assert one.train_mask.equal(again.train_mask)
    assert not one.train_mask.equal(other.train_mask)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"undirected": False}, "own has no directions.*use a set named \\*_directed"),
        ({"preprop": "ppr"}, "preprop='ppr' is unknown, use appnp"),
        ({"num_neighbors": [5, 5]}, r"num_neighbors=\[5, 5\] needs batch_size"),
        ({"num_neighbors": [], "batch_size": 2}, r"num_neighbors=\[\] must name a positive number"),
        (
            {"num_neighbors": [5], "batch_size": 2, "sparse_features": True},
            r"sparse_features needs whole graphs, but num_neighbors=\[5\]: leave one of them out",
        ),
        ({"split": 2}, "split=2 is not a split of own: use 0 to 1, random"),
        ({"split": "public"}, "split='public' is not a split of own: use 0 to 1, random"),
        ({"split": "random", "train_frac": 0.9}, "must be positive and leave something"),
    ],
)
def test_bad_settings(root: str, options: dict, reason: str):
    with pytest.raises(ValueError, match=reason):
        ready(root, **options)


def test_trainer_defaults(root: str):
    assert ready(root).trainer_defaults() == {"use_distributed_sampler": False, "log_every_n_steps": 1}
    assert ready(root, num_neighbors=[2], batch_size=4).trainer_defaults() == {"use_distributed_sampler": False}


class OneConvolution(LightningModule):
    """One averaging over neighbours and a linear layer; notes which nodes each stage saw."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.line = nn.Linear(num_features, num_classes)
        self.seen: dict[str, list] = {"train": [], "val": [], "test": []}

    def step(self, batch, stage: str) -> torch.Tensor:
        source, target = batch.edge_index
        summed = torch.zeros_like(batch.x).index_add(0, target, batch.x[source])
        logits = self.line(summed / target.bincount(minlength=len(batch.x))[:, None])
        mask = batch[f"{stage}_mask"]
        ids = batch.n_id if "n_id" in batch else torch.arange(len(batch.x))
        self.seen[stage].append(sorted(ids[mask].tolist()))
        return nn.functional.cross_entropy(logits[mask], batch.y[mask]) * batch.loss_scale

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.step(batch, "val")

    def test_step(self, batch, batch_idx):
        self.step(batch, "test")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("options", "steps"), [({}, 1), ({"num_neighbors": [2, 2], "batch_size": 4, "num_workers": 1}, 3)])
def test_training(root: str, tmp_path: Path, options: dict, steps: int):
    data = ready(root, **options)
    arguments = data.model_arguments()
    module = OneConvolution(arguments["num_features"], arguments["num_classes"])
    before = module.line.weight.detach().clone()
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
        **data.trainer_defaults(),
    )
    trainer.fit(module, datamodule=data)
    trainer.test(module, datamodule=data, verbose=False)
    assert trainer.global_step == 2 * steps
    assert not module.line.weight.equal(before)
    graph = data.train_set.graph
    for stage, epochs in (("train", 2), ("val", 2), ("test", 1)):
        per_epoch = np.array_split(np.array(module.seen[stage], dtype=object), epochs)
        assert all(sorted(node for nodes in epoch for node in nodes) == graph.members(stage).tolist() for epoch in per_epoch)


def test_a_whole_graph_moves_to_a_device_once(root: str):
    data = ready(root)
    (batch,) = data.train_dataloader()
    device = torch.device("meta")
    first, second = (data.transfer_batch_to_device(batch, device, 0) for _ in range(2))
    assert first is not second
    assert first.x.device == device
    assert batch.x.device == torch.device("cpu")
    assert first.keys() == batch.keys()
    assert all(first[key] is second[key] for key in batch.keys())  # noqa: SIM118
    data.teardown("fit")
    assert data.transfer_batch_to_device(batch, device, 0).x is not first.x
    sampled = ready(root, num_neighbors=[2], batch_size=4)
    batch = next(iter(sampled.train_dataloader()))
    assert sampled.transfer_batch_to_device(batch, device, 0).x.device == device
    assert not sampled._on_device
