import numpy as np
import pytest
import torch

from datamodules import GaugeSBMDataModule
from datamodules.graphs.block_model import block_model_edges
from datamodules.graphs.prepare import edge_homophily


def ready(**options) -> GaugeSBMDataModule:
    data = GaugeSBMDataModule(**options)
    data.prepare_data()
    data.setup("fit")
    return data


def only(loader):
    (batch,) = loader
    return batch


def ungauged(batch) -> torch.Tensor:
    """Transport the features of all nodes to the gauge of a node that reaches them, in as many hops as it takes."""
    source, target = batch.edge_index
    x = batch.x.to(torch.complex128)
    phase = torch.full((len(x),), torch.nan, dtype=torch.float64)
    phase[0] = 0
    for _ in range(20):
        known = phase[source].isfinite() & ~phase[target].isfinite()
        phase[target[known]] = phase[source[known]] + batch.edge_phase[known].double()
    assert phase.isfinite().all(), "the graph is connected"
    return x * torch.exp(-1j * phase)[:, None]


def test_counts():
    data = ready()
    batch = only(data.train_dataloader())
    assert batch.x.shape == (300, 8)
    assert batch.x.dtype == torch.complex64
    assert batch.edge_phase.dtype == torch.float32
    assert batch.y.bincount().tolist() == [100, 100, 100]
    assert [int(batch[f"{stage}_mask"].sum()) for stage in ("train", "val", "test")] == [150, 75, 75]
    assert batch.edge_index.shape == (2, 300 * 8 + 300)
    assert len(torch.unique(batch.edge_index, dim=1).t()) == 2700
    assert edge_homophily(data.train_set.graph.edges, batch.y.numpy()) == pytest.approx(0.1)
    assert data.model_arguments() == {
        "test_suites": ["regauged"],
        "num_features": 8,
        "num_classes": 3,
        "complex_features": True,
    }


@pytest.mark.parametrize(("degree", "homophily"), [(4, 0.0), (10, 0.5), (6, 1.0)])
def test_degree_and_homophily(degree: int, homophily: float):
    data = ready(nodes=400, classes=4, degree=degree, homophily=homophily)
    graph = data.train_set.graph
    assert len(graph.edges) == 400 * degree
    assert edge_homophily(graph.edges, graph.y.numpy()) == pytest.approx(homophily)
    degrees = np.bincount(graph.edges.target, minlength=400)
    assert degrees.var() == pytest.approx(degree, rel=0.3), "nearly Poisson"


def test_pairs_of_a_kind_are_uniform():
    labels = np.array([0, 0, 0, 1, 1, 1])
    counts = np.zeros((6, 6), dtype=int)
    for seed in range(1200):
        for low, high in block_model_edges(labels, 4 / 3, 0.5, np.random.default_rng(seed)):
            counts[low, high] += 1
    assert (np.tril(counts) == 0).all()
    alike = (labels[:, None] == labels) & np.triu(np.ones((6, 6), dtype=bool), 1)
    apart = labels[:, None] != labels
    for drawn, pairs in ((counts[alike], 6), (counts[apart & (counts > 0)], 9)):
        assert len(drawn) == pairs
        assert drawn.sum() == 2400
        assert (np.abs(drawn - 2400 / pairs) < 4.5 * np.sqrt(2400 / pairs)).all()


def test_phases_are_antisymmetric_and_a_pure_gauge():
    batch = only(ready().train_dataloader())
    source, target = batch.edge_index
    code, reverse = target * 300 + source, source * 300 + target
    assert batch.edge_phase[code.argsort()].equal(-batch.edge_phase[reverse.argsort()])
    assert batch.edge_phase.abs().max() > 3
    aligned = ungauged(batch)
    source_gauge = aligned * (batch.x[0, 0].conj() / batch.x[0, 0].abs())
    means = torch.stack([source_gauge[batch.y == label].mean(dim=0) for label in range(3)])
    spread = (source_gauge - means[batch.y]).abs().square().mean(dim=0)
    assert spread.mean().item() == pytest.approx(1.5**2, rel=0.1), "noise of variance σ² around class means"
    without_transport = torch.stack([batch.x[batch.y == label].mean(dim=0) for label in range(3)])
    assert without_transport.abs().mean() < 0.35 * means.abs().mean(), "a random phase hides the means"


def test_no_noise_shows_the_means():
    batch = only(ready(noise=0.0, classes=2).train_dataloader())
    aligned = ungauged(batch)
    for label in range(2):
        of_class = aligned[batch.y == label]
        assert (of_class - of_class[0]).abs().max() < 1e-5
    assert (aligned[batch.y == 0][0] - aligned[batch.y == 1][0]).abs().max() > 0.1


def test_the_regauged_suite_is_the_same_graph_in_another_gauge():
    data = ready()
    batch, regauged = (only(loader) for loader in data.test_dataloader())
    for same in ("edge_index", "y", "train_mask", "val_mask", "test_mask", "labelled_mask"):
        assert batch[same].equal(regauged[same])
    rotation = regauged.x / batch.x
    phi = rotation[:, 0].angle()
    assert (rotation - torch.exp(1j * phi)[:, None]).abs().max() < 1e-3
    assert phi.std() > 1
    source, target = batch.edge_index
    change = regauged.edge_phase - batch.edge_phase - (phi[target] - phi[source])
    assert (torch.exp(1j * change) - 1).abs().max() < 1e-4
    assert ready(regauge_suite=False).suite_names() == []
    assert not isinstance(ready(regauge_suite=False).test_dataloader(), list)


def test_generator_seed_makes_the_graph():
    one, again, other = (only(ready(**seeds).train_dataloader()) for seeds in ({}, {"seed": 5}, {"generator_seed": 1}))
    assert one.x.equal(again.x)
    assert one.train_mask.equal(again.train_mask)
    assert not one.x.equal(other.x)
    assert not one.edge_index.equal(other.edge_index)
    assert not one.train_mask.equal(other.train_mask)


def test_sampled():
    data = ready(num_neighbors=[3, 3], batch_size=25)
    whole = ready().train_set.graph
    for batch in data.train_dataloader():
        ends = batch.n_id[batch.edge_index]
        proper = ends[0] != ends[1]
        stored = dict(zip((whole.edges.source * 300 + whole.edges.target).tolist(), whole.edges.phase.tolist(), strict=True))
        assert batch.edge_phase[proper].tolist() == [stored[code] for code in (ends[0] * 300 + ends[1])[proper].tolist()]
        assert batch.x.equal(whole.x[batch.n_id])
    seeds = [sorted(int(node) for batch in loader for node in batch.n_id[batch.test_mask]) for loader in data.test_dataloader()]
    assert seeds == [whole.members("test").tolist()] * 2


def test_smoke_settings_fit():
    data = ready(**GaugeSBMDataModule.smoke)
    assert len(data.train_set.graph) == 60
    assert len(list(ready(**GaugeSBMDataModule.smoke, num_neighbors=[2]).train_dataloader())) == 5


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"classes": 1}, "use 2 to 300 classes"),
        ({"features": 0}, "at least one feature"),
        ({"homophily": 1.5}, "homophily=1.5 must be in 0 to 1"),
        ({"degree": 0}, "degree=0 positive"),
        ({"noise": -1.0}, "noise=-1 at least 0"),
        (
            {"nodes": 20, "degree": 12, "homophily": 0.8},
            "degree=12 with homophily=0.8 asks for 96 edges between nodes of one class, more",
        ),
        ({"nodes": 20, "degree": 15, "homophily": 0.0}, "150 edges between nodes of two classes, more than half of the 133 pairs"),
        ({"train_frac": 0.8, "val_frac": 0.2}, "must be positive and leave something"),
    ],
)
def test_bad_settings(options: dict, reason: str):
    with pytest.raises(ValueError, match=reason):
        ready(**options)
