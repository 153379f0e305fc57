import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from small_graphs import WholeGraph, fitted, quiet_trainer, small_graph
from torch import Tensor, nn
from torch_geometric.data import Data

from callbacks.exact_resume import ExactResume
from lightning_modules.gesc.backbones import _NETWORKS
from lightning_modules.gesc.node_classification import SKIPPED_IN_A_ROW
from lightning_modules.gesc.node_classifier import NodeClassifier
from lightning_modules.gesc.post_process import post_process

GRAPH = small_graph()


def classifier(backbone: Any = "gcn", graph: Data = GRAPH, **options: Any) -> NodeClassifier:
    torch.manual_seed(0)
    sizes = {"num_features": graph.x.shape[1], "num_classes": 3, "complex_features": graph.x.is_complex()}
    return NodeClassifier(backbone, **{"hidden": 16, "lr": 0.02, **sizes, **options})


@pytest.mark.parametrize("backbone", _NETWORKS)
def test_every_baseline_learns(tmp_path: Path, backbone: str):
    model = classifier(backbone, dropout=0.1)
    with torch.no_grad():
        before = nn.functional.cross_entropy(model(GRAPH)[GRAPH.train_mask], GRAPH.y[GRAPH.train_mask])
    trainer = fitted(tmp_path, model, GRAPH, 60, limit_val_batches=0)
    found = model.eval()(GRAPH).argmax(dim=-1)[GRAPH.train_mask] == GRAPH.y[GRAPH.train_mask]
    assert found.float().mean() > 0.9
    assert trainer.callback_metrics["train/loss"] < before / 2
    assert trainer.callback_metrics["train/skipped_steps"] == 0


def test_metrics_by_hand(tmp_path: Path):
    suite = small_graph(seed=1)
    model = classifier(test_suites=["noisy"]).eval()
    trainer = quiet_trainer(tmp_path, 1)
    trainer.test(model, WholeGraph(GRAPH, [suite]))
    found = dict(trainer.callback_metrics)
    assert set(found) == {"test/accuracy", "test/f1", "test/noisy/accuracy", "test/noisy/f1"}
    for graph, prefix in ((GRAPH, "test/"), (suite, "test/noisy/")):
        guess, y = model(graph).argmax(dim=-1)[graph.test_mask], graph.y[graph.test_mask]
        assert found[f"{prefix}accuracy"].item() == pytest.approx((guess == y).float().mean().item())
        hits, named, there = (torch.bincount(labels, minlength=3) for labels in (y[guess == y], guess, y))
        known = named + there > 0
        scores = (2 * hits / (named + there))[known]
        assert found[f"{prefix}f1"].item() == pytest.approx(scores.mean().item())
    trainer.validate(model, WholeGraph(GRAPH))
    logits, mask = model(GRAPH), GRAPH.val_mask
    loss = nn.functional.cross_entropy(logits[mask], GRAPH.y[mask])
    assert trainer.callback_metrics["val/loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert trainer.callback_metrics["val/accuracy"].item() == pytest.approx(
        (logits.argmax(-1) == GRAPH.y)[mask].float().mean().item()
    )


def test_a_process_without_nodes_has_no_loss():
    empty = copy.copy(GRAPH)
    empty.train_mask = empty.val_mask = torch.zeros_like(GRAPH.train_mask)
    model = classifier().eval()
    assert model.training_step(empty, 0) == 0
    model.validation_step(empty, 0)
    assert model.val_metrics.compute()["val/accuracy"] == 0
    model.validation_step(GRAPH, 0)
    right = (model(GRAPH).argmax(-1) == GRAPH.y)[GRAPH.val_mask]
    assert model.val_loss.compute().isfinite()
    model.val_metrics.reset()
    model.validation_step(empty, 0)
    model.validation_step(GRAPH, 0)
    assert model.val_metrics.compute()["val/accuracy"].item() == pytest.approx(right.float().mean().item())


def shares(graph: Data, sizes: list[int]) -> list[Data]:
    """The graph as ``len(sizes)`` processes see it, of unequal shares."""
    total, parts = int(graph.train_mask.sum()), []
    for rows in graph.train_mask.nonzero()[:, 0].split(sizes):
        part = copy.copy(graph)
        part.train_mask = torch.isin(torch.arange(len(graph.y)), rows)
        part.loss_scale = torch.tensor(len(sizes) * len(rows) / total)
        parts.append(part)
    return parts


@pytest.mark.parametrize("sizes", [[7, 8], [3, 12], [2, 6, 7]])
def test_processes_with_unequal_shares_have_the_gradient_of_one(sizes: list[int]):
    model = classifier("gat", dropout=0.0)

    def gradients(graphs: list[Data]) -> list[Tensor]:
        model.zero_grad()
        for graph in graphs:
            model.training_step(graph, 0).backward()
        return [parameter.grad.clone() / len(graphs) for parameter in model.parameters() if parameter.grad is not None]

    one, several = gradients([GRAPH]), gradients(shares(GRAPH, sizes))
    assert len(one) == len(list(model.parameters()))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, several, strict=True))
    unscaled = shares(GRAPH, sizes)
    for part in unscaled:
        part.loss_scale = torch.tensor(1.0)
    if len(set(sizes)) > 1:
        assert not all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, gradients(unscaled), strict=True))


@pytest.mark.parametrize("post", ["none", "cs", "cs_lp"])
def test_predictions_are_post_processed_and_validation_is_not(post: Any):
    model = classifier(post=post).eval()
    expected = post_process(model(GRAPH), GRAPH.y, GRAPH.labelled_mask, GRAPH.edge_index, post)
    shared_out = shares(GRAPH, [7, 8])[1]
    for outputs in (model.test_step(GRAPH, 0), model.predict_step(GRAPH, 0), model.predict_step(shared_out, 0)):
        assert torch.equal(outputs["probabilities"], expected)
    assert torch.equal(model.validation_step(GRAPH, 0)["probabilities"], model(GRAPH).softmax(-1))
    scrambled = copy.copy(GRAPH)
    scrambled.y = torch.where(GRAPH.labelled_mask, GRAPH.y, (GRAPH.y + 1) % 3)
    assert torch.equal(model.test_step(scrambled, 0)["probabilities"], expected)


def test_complex_features_are_seen_as_parts_or_modulus():
    graph = small_graph(complex_features=True)
    parts, modulus = classifier("mlp", graph).eval(), classifier("mlp", graph, complex_input="modulus").eval()
    x = torch.cat([graph.x.real, graph.x.imag], dim=1)
    assert torch.equal(parts(graph), parts.network(x, graph.edge_index))
    assert torch.equal(modulus(graph), modulus.network(graph.x.abs(), graph.edge_index))
    turned = copy.copy(graph)
    turned.x = graph.x * torch.exp(1j * torch.arange(len(graph.y)))[:, None]
    assert torch.allclose(modulus(graph), modulus(turned), atol=1e-5)
    assert not torch.allclose(parts(graph), parts(turned), atol=1e-2)


def test_sampled_nodes_are_named():
    graph = copy.copy(GRAPH)
    graph.n_id = torch.arange(30)
    assert torch.equal(classifier().eval().predict_step(graph, 0)["n_id"], graph.n_id)


class Losses(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(outputs["loss"].item() / trainer.callback_metrics["train/loss"].item())

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


@pytest.mark.parametrize("limit", [{"epochs": 8}, {"epochs": -1, "max_steps": 8}])
def test_the_loss_rises_and_the_rate_falls(tmp_path: Path, limit: dict[str, int]):
    losses = Losses()
    fitted(tmp_path, classifier(warmup_epochs=4, lr=0.1), GRAPH, callbacks=[losses], limit_val_batches=0, **limit)
    assert losses.seen == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1], rel=1e-5)
    assert losses.rates == pytest.approx([0.01 + 0.09 * (1 + math.cos(math.pi * t / 8)) / 2 for t in range(8)])


class Spoil(Callback):
    """Make the features infinite, or one gradient, at some epochs."""

    def __init__(self, epochs: range | list[int], gradient: bool) -> None:
        self.epochs, self.gradient = epochs, gradient
        self.states: list[Any] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.kept = batch.x
        if trainer.current_epoch in self.epochs and not self.gradient:
            batch.x = batch.x * torch.inf

    def on_after_backward(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.current_epoch in self.epochs and self.gradient:
            next(pl_module.parameters()).grad[0] = torch.nan

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        batch.x = self.kept
        optimizer = trainer.optimizers[0].state_dict()["state"]
        self.states.append(copy.deepcopy((list(pl_module.parameters()), optimizer)))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("gradient", [False, True])
def test_a_step_that_is_not_finite_changes_nothing(tmp_path: Path, gradient: bool):
    spoil = Spoil([2, 3], gradient)
    model = classifier()
    trainer = fitted(tmp_path, model, GRAPH, 6, callbacks=[spoil], limit_val_batches=0, gradient_clip_val=5.0)
    assert [same(a, b) for a, b in zip(spoil.states[:-1], spoil.states[1:], strict=True)] == [False, True, True, False, False]
    assert trainer.callback_metrics["train/skipped_steps"] == 2
    restored = classifier()
    checkpoint: dict[str, Any] = {}
    model.on_save_checkpoint(checkpoint)
    restored.on_load_checkpoint(checkpoint)
    assert restored.skipped_steps == 2


def test_an_infinite_loss_with_finite_gradients_is_skipped():
    class Infinite(NodeClassifier):
        def training_pass(self, batch: Data) -> tuple[Tensor, Tensor | None]:
            return self(batch), torch.tensor(torch.inf)

    torch.manual_seed(0)
    model = Infinite("mlp", num_features=12, num_classes=3, hidden=8)
    model.training_step(GRAPH, 0).backward()
    assert all(not parameter.grad.isfinite().all() for parameter in model.parameters())  # type: ignore[union-attr]


def test_a_run_that_never_is_finite_ends(tmp_path: Path):
    spoil = Spoil(range(3, 100), gradient=True)
    with pytest.raises(RuntimeError, match=r"20 steps in a row was not finite: lr 0.0\d+, gradient norm nan, epoch 22"):
        fitted(tmp_path, classifier(), GRAPH, 60, callbacks=[spoil], limit_val_batches=0)
    assert len(spoil.states) == 3 + SKIPPED_IN_A_ROW - 1

    with_breaks = Spoil([epoch for epoch in range(50) if epoch % 10], gradient=True)
    trainer = fitted(tmp_path, classifier(), GRAPH, 50, callbacks=[with_breaks], limit_val_batches=0)
    assert trainer.callback_metrics["train/skipped_steps"] > 40


class StopAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == self.epoch:
            raise SystemExit


def test_a_killed_run_continues_exactly(tmp_path: Path):
    def run(folder: Path, *callbacks: Callback, resume: str | None = None) -> dict[str, Tensor]:
        model = classifier(warmup_epochs=5)
        trainer = quiet_trainer(folder, 8, callbacks=[ExactResume(every_n_steps=1), *callbacks], enable_checkpointing=True)
        trainer.fit(model, WholeGraph(GRAPH), ckpt_path=resume)
        return copy.deepcopy(model.state_dict())

    whole = run(tmp_path / "whole")
    with pytest.raises(SystemExit):
        run(tmp_path / "killed", StopAt(4))
    continued = run(tmp_path / "killed", resume=str(tmp_path / "killed" / "checkpoints" / "last.ckpt"))
    assert all(torch.equal(whole[name], continued[name]) for name in whole)


def test_double_precision(tmp_path: Path):
    model = classifier("h2gcn")
    trainer = fitted(tmp_path, model, GRAPH, 2, precision="64-true")
    assert model.in_precision(small_graph(complex_features=True)).x.dtype == torch.complex128
    assert model.float().in_precision(GRAPH) is GRAPH
    assert trainer.callback_metrics["train/loss"].isfinite()
    assert GRAPH.x.dtype == torch.float32


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="num_features and num_classes"):
        NodeClassifier("mlp")
    with pytest.raises(ValueError, match="post='c&s' is unknown"):
        classifier(post="c&s")
    with pytest.raises(ValueError, match="complex_input='phase' is unknown"):
        classifier(complex_input="phase")
    graph = copy.copy(GRAPH)
    del graph.edge_direction
    with pytest.raises(ValueError, match="direction of the edges was discarded"):
        classifier("magnet")(graph)
    classifier("magnet", magnetic_q=0.0)(graph)
