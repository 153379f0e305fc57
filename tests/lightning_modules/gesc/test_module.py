import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from small_graphs import WholeGraph, fitted, quiet_trainer, small_graph
from torch import Tensor, nn
from torch_geometric.data import Data

from lightning_modules.gesc.consistency import consistency
from lightning_modules.gesc.module import GESCModule
from lightning_modules.gesc.network import GESC

GRAPH = small_graph(nodes=20, links=40)
COMPLEX = small_graph(nodes=20, links=40, complex_features=True)
NO_DROPOUT = {"dropout": 0.0, "attn_dropout": 0.0, "classifier_dropout": 0.0}


def gesc(graph: Data = GRAPH, **options: Any) -> GESCModule:
    torch.manual_seed(0)
    sizes = {"num_features": graph.x.shape[1], "num_classes": 3, "complex_features": graph.x.is_complex()}
    return GESCModule(**{"hidden": 8, "heads": 2, "lr": 0.01, "warmup_epochs": 0, **sizes, **options})


def train_loss(model: GESCModule, graph: Data) -> Tensor:
    return nn.functional.cross_entropy(model(graph)[graph.train_mask], graph.y[graph.train_mask])


@pytest.mark.parametrize("preset", ["paper", "official_code"])
def test_it_learns_a_graph_by_heart(tmp_path: Path, preset: str):
    model = gesc(preset=preset)
    with torch.no_grad():
        before = train_loss(model.eval(), GRAPH)
    trainer = fitted(tmp_path, model.train(), GRAPH, 150, limit_val_batches=0, gradient_clip_val=5.0)
    right = model.eval()(GRAPH).argmax(dim=-1)[GRAPH.train_mask] == GRAPH.y[GRAPH.train_mask]
    assert right.all()
    assert train_loss(model, GRAPH) < before / 4
    assert trainer.callback_metrics["train/penalty"] > 0
    assert trainer.callback_metrics["train/skipped_steps"] == 0


def test_complex_features_keep_their_gauge(tmp_path: Path):
    model = gesc(COMPLEX)
    assert model.network.readout == "modulus"
    assert model.network.encoder.bias is None
    assert model.network.connection.kind == "given"
    fitted(tmp_path, model, COMPLEX, 3)
    phi = torch.linspace(0, 9, 20)
    turned = copy.copy(COMPLEX)
    turned.x = COMPLEX.x * torch.exp(1j * phi)[:, None]
    turned.edge_phase = COMPLEX.edge_phase + phi[COMPLEX.edge_index[1]] - phi[COMPLEX.edge_index[0]]
    model.eval()
    assert torch.allclose(model(turned), model(COMPLEX), atol=1e-4)
    turned.edge_phase = COMPLEX.edge_phase
    assert not torch.allclose(model(turned), model(COMPLEX), atol=1e-2)
    with pytest.raises(ValueError, match="gauge"):
        gesc(COMPLEX, readout="real_imag")(COMPLEX)
    assert gesc(COMPLEX, connection="trivial").network.connection.kind == "trivial", "what is said wins"


def test_complex_features_as_real_ones():
    torch.manual_seed(1)
    model = gesc(COMPLEX, complex_input="parts").eval()
    real = copy.copy(COMPLEX)
    real.x = torch.cat([COMPLEX.x.real, COMPLEX.x.imag], dim=1)
    assert torch.equal(model(COMPLEX), model.network(real))
    assert (model.network.connection.kind, model.network.readout) == ("learned", "real_imag"), "the preset's"
    assert len(model.diagnose(COMPLEX)) == 2
    with pytest.raises(ValueError, match="use 'gauge' or 'parts'"):
        gesc(complex_input="modulus")


@pytest.mark.parametrize(("preset", "form"), [("paper", "jensen_shannon"), ("official_code", "official_code")])
def test_the_loss_of_two_passes(preset: str, form: Any):
    model = gesc(preset=preset, consistency_weight=0.3, consistency_temperature=1.5)
    torch.manual_seed(5)
    first, second = model.network(GRAPH), model.network(GRAPH)
    mask = GRAPH.train_mask
    expected = nn.functional.cross_entropy(first[mask], GRAPH.y[mask]) + 0.3 * consistency(first, second, 1.5, form)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    torch.manual_seed(5)
    loss = model.training_step(GRAPH, 0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    assert all(torch.allclose(a, p.grad, atol=1e-6) for a, p in zip(gradients, model.parameters(), strict=True))  # type: ignore[arg-type]
    assert consistency(first, second, 1.5, form) > 1e-4


def test_one_pass_without_the_penalty(monkeypatch: pytest.MonkeyPatch):
    passes: list[bool] = []
    forward = GESC.forward
    monkeypatch.setattr(GESC, "forward", lambda self, data: passes.append(torch.is_grad_enabled()) or forward(self, data))
    logits, penalty = gesc(consistency_weight=0.0).training_pass(GRAPH)
    assert (passes, penalty) == ([True], None)
    passes.clear()
    penalty = gesc(**NO_DROPOUT).training_pass(GRAPH)[1]
    assert passes == [True, False]
    assert penalty is not None
    assert penalty.item() == pytest.approx(0, abs=1e-6)
    penalty = gesc(**NO_DROPOUT, drop_edge=0.4).training_pass(GRAPH)[1]
    assert penalty is not None
    assert penalty > 1e-6, "the two passes drop other edges"
    thinned: list[int] = []
    monkeypatch.setattr(GESC, "forward", lambda self, data: thinned.append(data.num_edges) or forward(self, data))
    gesc(drop_edge=0.4).training_pass(GRAPH)
    assert len(thinned) == 2
    assert max(thinned) < GRAPH.num_edges


@pytest.mark.parametrize("preset", ["paper", "official_code"])
def test_processes_with_unequal_shares_have_the_gradient_of_one(preset: str):
    model = gesc(preset=preset)
    rows = GRAPH.train_mask.nonzero()[:, 0]
    shares = []
    for part in rows.split([3, len(rows) - 3]):
        share = copy.copy(GRAPH)
        share.train_mask = torch.isin(torch.arange(20), part)
        share.loss_scale = torch.tensor(2 * len(part) / len(rows))
        shares.append(share)

    def gradients(graphs: list[Data]) -> list[Tensor]:
        model.zero_grad()
        for graph in graphs:
            torch.manual_seed(3)  # equal dropout: only then is the penalty the same
            model.training_step(graph, 0).backward()
        return [parameter.grad.clone() / len(graphs) for parameter in model.parameters() if parameter.grad is not None]

    one, two = gradients([GRAPH]), gradients(shares)
    assert len(one) == len(list(model.parameters())), "no parameter is unused"
    assert max((a - b).abs().max().item() for a, b in zip(one, two, strict=True)) < 1e-6


def test_arguments_reach_the_network():
    network = gesc(
        sic=[1.0, 0.5], skip=0.3, jk="mean", norm="none", gate="soft", connection="magnetic", impl="reference", layers=3
    ).network
    assert [float(conv.sic) for conv in network.convs] == [1.0, 0.5, 0.5]  # type: ignore[arg-type]
    assert (network.skip, network.jk, network.connection.kind) == (0.3, "mean", "magnetic")
    paper, official = gesc().network, gesc(preset="official_code").network
    assert (paper.connection.kind, official.connection.kind) == ("learned", "trivial")
    plain = GESC.from_preset("paper", 12, 3)
    defaults = GESCModule(num_features=12, num_classes=3).network
    assert [p.shape for p in defaults.parameters()] == [p.shape for p in plain.parameters()]


def test_prediction_and_diagnosis(tmp_path: Path):
    model = gesc().eval()
    (found,) = quiet_trainer(tmp_path, 1).predict(model, WholeGraph(GRAPH))  # type: ignore[misc]
    assert torch.allclose(found["probabilities"], model(GRAPH).softmax(dim=-1))  # type: ignore[call-overload, index]
    hidden = model.network.hidden(GRAPH)
    assert all(torch.allclose(a, b) for a, b in zip(found["hidden"], hidden, strict=True))  # type: ignore[call-overload, index, arg-type]
    assert hidden[0].is_complex()
    links = int((GRAPH.edge_index[0] != GRAPH.edge_index[1]).sum())
    assert [len(layer["alignment"]) for layer in model.diagnose(GRAPH)] == [links, links]


def test_a_checkpoint_knows_its_preset(tmp_path: Path):
    model = gesc(preset="official_code", sic=[1.0])
    fitted(tmp_path, model, GRAPH, 2, enable_checkpointing=True).save_checkpoint(tmp_path / "model.ckpt")
    loaded = GESCModule.load_from_checkpoint(tmp_path / "model.ckpt").eval()
    assert loaded.hparams["preset"] == "official_code"
    assert torch.equal(loaded(GRAPH), model.eval()(GRAPH))


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed", "bf16-true"])
def test_low_precision_is_refused(tmp_path: Path, precision: Any):
    with pytest.raises(ValueError, match="complex layers need trainer.precision 32-true or 64-true"):
        fitted(tmp_path, gesc(), GRAPH, 1, precision=precision)


def test_double_precision(tmp_path: Path):
    model = gesc(COMPLEX)
    fitted(tmp_path, model, COMPLEX, 2, precision="64-true")
    assert model.diagnose(COMPLEX)[0]["alignment"].dtype == torch.float64


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="preset='arxiv' is unknown"):
        gesc(preset="arxiv")
    with pytest.raises(ValueError, match=r"drop_edge=1 must be in \[0, 1\)"):
        gesc(drop_edge=1)
