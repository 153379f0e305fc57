"""Every model does the same with sparse features as with dense ones."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from small_graphs import fitted, quiet_trainer, small_graph
from torch import Tensor
from torch_geometric.data import Data

from callbacks import OracleTestMaximum, SICMonitor
from datamodules import HeterophilousGraphDataModule
from lightning_modules.gesc.backbones import _NETWORKS
from lightning_modules.gesc.drop_edge import drop_edges
from lightning_modules.gesc.module import GESCModule
from lightning_modules.gesc.node_classifier import NodeClassifier

DENSE = small_graph()
DENSE.x = DENSE.x * (torch.rand(DENSE.x.shape, generator=torch.Generator().manual_seed(0)) < 0.3)
SPARSE = copy.copy(DENSE)
SPARSE.x = DENSE.x.to_sparse_csr()
SIZES: dict[str, Any] = {"num_features": 12, "num_classes": 3}

MODELS: dict[str, Any] = {
    **{name: lambda name=name, **o: NodeClassifier(name, hidden=16, **SIZES, **o) for name in _NETWORKS},
    "gesc": lambda **o: GESCModule(hidden=8, heads=2, **SIZES, **o),
    "gesc_official": lambda **o: GESCModule("official_code", hidden=8, heads=2, **SIZES, **o),
    "gesc_reference": lambda **o: GESCModule(hidden=8, heads=2, impl="reference", **SIZES, **o),
    "gesc_magnetic": lambda **o: GESCModule(hidden=8, heads=2, connection="magnetic", **SIZES, **o),
}


def built(name: str, **options: Any) -> LightningModule:
    torch.manual_seed(0)
    return MODELS[name](**options)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name: str):
    model = built(name).double().eval()
    if name == "gesc":
        torch.nn.init.normal_(model.network.connection.direction)  # type: ignore[union-attr, arg-type]

    def outcome(graph: Data) -> list[Tensor]:
        logits = model(graph)
        return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()), materialize_grads=True)]

    for dense, sparse in zip(outcome(DENSE), outcome(SPARSE), strict=True):
        assert torch.allclose(dense, sparse, atol=1e-10, rtol=1e-10)
        assert dense.layout == sparse.layout


@pytest.mark.parametrize("name", [*_NETWORKS, "gesc"])
def test_it_learns(tmp_path: Path, name: str):
    model = built(name, lr=0.03, dropout=0.1, **({"warmup_epochs": 0} if name == "gesc" else {}))
    trainer = fitted(tmp_path, model, SPARSE, 30, callbacks=[OracleTestMaximum(), *([SICMonitor()] if name == "gesc" else [])])
    found = model.eval()(SPARSE).argmax(dim=-1)[SPARSE.train_mask] == SPARSE.y[SPARSE.train_mask]
    assert found.float().mean() > 0.7
    assert trainer.callback_metrics["train/skipped_steps"] == 0
    assert trainer.callback_metrics["oracle/test_max"] > 0


def test_diagnosis_prediction_and_dropped_edges(tmp_path: Path):
    model = built("gesc").eval()
    for dense, sparse in zip(model.diagnose(DENSE), model.diagnose(SPARSE), strict=True):  # type: ignore[operator]
        assert all(torch.allclose(dense[key], sparse[key], atol=1e-5) for key in dense)
    model.post = "cs_lp"  # type: ignore[assignment]
    assert torch.allclose(model.test_step(DENSE, 0)["probabilities"], model.test_step(SPARSE, 0)["probabilities"], atol=1e-5)
    thinned = drop_edges(SPARSE, 0.5)
    assert thinned.x is SPARSE.x
    assert thinned.edge_index.shape[1] < SPARSE.edge_index.shape[1]


@pytest.fixture
def own_set(tmp_path: Path) -> str:
    import numpy as np

    masks = {f"{stage}_masks": DENSE[f"{stage}_mask"].numpy()[None] for stage in ("train", "val", "test")}
    arrays = {"node_features": DENSE.x.numpy(), "node_labels": DENSE.y.numpy(), "edges": DENSE.edge_index.numpy().T}
    np.savez(tmp_path / "own.npz", **arrays, **masks)
    return str(tmp_path / "own.npz")


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
@pytest.mark.parametrize("name", ["gcn", "gesc"])
def test_through_the_data_module(tmp_path: Path, own_set: str, name: str, precision: Any):
    def losses(sparse_features: bool) -> list[float]:
        data = HeterophilousGraphDataModule("own", own_set, sparse_features=sparse_features)
        without_dropout = {"dropout": 0.0, **({"attn_dropout": 0.0, "classifier_dropout": 0.0} if name == "gesc" else {})}
        model = built(name, **without_dropout)
        trainer = quiet_trainer(tmp_path, 4, precision=precision, deterministic=True, use_distributed_sampler=False)
        try:
            trainer.fit(model, datamodule=data)
            (tested,) = trainer.test(model, datamodule=data, verbose=False)
        finally:
            torch.use_deterministic_algorithms(False)
        weights = [parameter.double().sum().item() for parameter in model.parameters()]
        return [tested["test/accuracy"], *weights]

    assert losses(True) == pytest.approx(losses(False), rel=1e-3, abs=1e-3)
