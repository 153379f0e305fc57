import warnings

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader

from callbacks.ema import EMAWeights

STEPS_PER_EPOCH = 3


class Line(LightningModule):
    """A linear model whose frozen part, tied part, counter and batch norm show what is averaged."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layer = nn.Linear(2, 2, bias=False)
        self.layer.weight.data = torch.randn(2, 2, generator=generator)
        self.tied = self.layer
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.norm = nn.BatchNorm1d(2)
        self.evaluated = []

    def training_step(self, batch, batch_idx):
        return self.norm(self.layer(batch) * self.frozen).square().sum() + self.layer(batch).sum()

    def validation_step(self, batch, batch_idx):
        self.evaluated.append(self.layer.weight.detach().clone())
        self.log("val/loss", self.layer.weight.sum())

    def test_step(self, batch, batch_idx):
        self.evaluated.append(self.layer.weight.detach().clone())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Trace(Callback):
    """Keep the live weights after each step."""

    def __init__(self):
        self.live = []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.live.append(pl_module.layer.weight.detach().clone())


def batches():
    generator = torch.Generator().manual_seed(1)
    return DataLoader(torch.randn(STEPS_PER_EPOCH, 4, 2, generator=generator), batch_size=None)


def fit(folder, ema, epochs=2, ckpt_path=None, model=None, callbacks=(), **options):
    model = model or Line()
    trainer = Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        callbacks=[ema, *callbacks],
        logger=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        limit_val_batches=options.pop("limit_val_batches", 1),
        **options,
    )
    trainer.fit(model, batches(), batches(), ckpt_path=ckpt_path)
    return trainer, model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trace, ema = Trace(), EMAWeights(decay=0.8, warmup=True)
    checkpoint = ModelCheckpoint(folder, filename="{step}", monitor="val/loss", mode="max", save_top_k=-1)
    trainer, model = fit(folder, ema, callbacks=[trace, checkpoint])
    initial = Line().layer.weight.detach()
    return trainer, model, ema, [initial, *trace.live], folder


def closed_form(weights, decays):
    """Weighted sum of all weights so far."""
    total = torch.zeros_like(weights[0])
    for t in range(len(weights)):
        share = 1.0 if t == 0 else 1.0 - decays[t - 1]
        total += share * torch.tensor(decays[t:]).prod() * weights[t]
    return total


def test_closed_form_with_warmup(run):
    _, model, ema, weights, _ = run
    decays = [min(0.8, (1 + t) / (10 + t)) for t in range(6)]
    assert ema.updates == 6
    assert ema.decay_at(0) == 0.1
    assert ema.decay_at(1000) == 0.8
    assert torch.allclose(model.evaluated[0], closed_form(weights[:4], decays[:3]), atol=1e-6)
    assert torch.allclose(model.evaluated[1], closed_form(weights, decays), atol=1e-6)
    assert not torch.allclose(model.evaluated[1], weights[-1], atol=1e-3)


def test_constant_decay():
    assert [EMAWeights(decay=0.9).decay_at(t) for t in (0, 5)] == [0.9, 0.9]


def test_validation_does_not_change_the_live_weights(run, tmp_path):
    trace = Trace()
    fit(tmp_path, EMAWeights(decay=0.8, warmup=True), callbacks=[trace], limit_val_batches=0, enable_checkpointing=False)
    assert all(torch.equal(a, b) for a, b in zip(trace.live, run[3][1:], strict=True))


def test_module_holds_the_average_after_fit(run):
    assert torch.equal(run[1].layer.weight, run[1].evaluated[1])


def test_checkpoint_holds_both_and_loads_with_weights_only(run):
    _, model, _, weights, folder = run
    checkpoint = torch.load(folder / "step=3.ckpt", weights_only=True)
    for name in ("layer.weight", "tied.weight"):
        assert torch.equal(checkpoint["state_dict"][name], model.evaluated[0])
        assert torch.equal(checkpoint["current_model_state"][name], weights[3])
    assert checkpoint["state_dict"]["norm.num_batches_tracked"] == 3
    assert torch.equal(checkpoint["state_dict"]["norm.running_mean"], checkpoint["current_model_state"]["norm.running_mean"])
    assert torch.equal(checkpoint["state_dict"]["frozen"], torch.ones(2))
    assert checkpoint["callbacks"]["EMAWeights"] == {"decay": 0.8, "warmup": True, "updates": 3}


def test_resume_is_exact(run, tmp_path):
    _, model, _, weights, folder = run
    trace, ema = Trace(), EMAWeights(decay=0.8, warmup=True)
    _, resumed = fit(tmp_path, ema, ckpt_path=folder / "step=3.ckpt", callbacks=[trace], enable_checkpointing=False)
    assert all(torch.equal(a, b) for a, b in zip(trace.live, weights[4:], strict=True))
    assert ema.updates == 6
    assert all(torch.equal(a, resumed.state_dict()[name]) for name, a in model.state_dict().items())


@pytest.mark.parametrize("changed", [{"decay": 0.7}, {"warmup": False}])
def test_resume_with_another_decay_is_refused(run, tmp_path, changed):
    ema = EMAWeights(**{"decay": 0.8, "warmup": True, **changed})
    with pytest.raises(ValueError, match=f"started with {next(iter(changed))}="):
        fit(tmp_path, ema, ckpt_path=run[4] / "step=3.ckpt", enable_checkpointing=False)


def test_test_of_best_uses_its_average(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, filename="{step}", monitor="val/loss", mode="max")
    trainer, model = fit(tmp_path, EMAWeights(decay=0.8), callbacks=[checkpoint])
    best = model.evaluated[max((0, 1), key=lambda i: model.evaluated[i].sum())]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*WeightAveraging.*")
        trainer.test(model, batches(), ckpt_path="best", verbose=False)
        assert torch.equal(model.evaluated[-1], best)
        fresh = Line()
        Trainer(callbacks=[EMAWeights()], logger=False, enable_progress_bar=False, accelerator="cpu").test(
            fresh, batches(), ckpt_path=checkpoint.best_model_path, verbose=False
        )
    assert torch.equal(fresh.evaluated[-1], best)


def test_checkpoint_of_an_interrupted_validation_is_not_exchanged(tmp_path):
    class Interrupt(Callback):
        def on_validation_batch_end(self, trainer, *_):
            trainer.save_checkpoint(tmp_path / "middle.ckpt")
            raise RuntimeError("stop here")

    trace, model = Trace(), Line()
    with pytest.raises(RuntimeError, match="stop here"):
        fit(tmp_path, EMAWeights(decay=0.8), model=model, callbacks=[trace, Interrupt()], enable_checkpointing=False)
    checkpoint = torch.load(tmp_path / "middle.ckpt", weights_only=True)
    assert torch.equal(checkpoint["current_model_state"]["layer.weight"], trace.live[-1])
    assert torch.equal(checkpoint["state_dict"]["layer.weight"], model.evaluated[0])
    assert torch.equal(model.layer.weight, trace.live[-1]), "the live weights are back"


def test_one_update_an_optimiser_step(tmp_path):
    ema = EMAWeights()
    fit(tmp_path, ema, accumulate_grad_batches=3, limit_val_batches=0, enable_checkpointing=False)
    assert ema.updates == 2


def test_checkpoint_without_average_starts_one(tmp_path):
    trainer, model = fit(tmp_path, Trace(), epochs=1, enable_checkpointing=False)
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    ema = EMAWeights(decay=0.5)
    _, resumed = fit(tmp_path, ema, ckpt_path=tmp_path / "plain.ckpt", enable_checkpointing=False)
    assert ema.updates == 3
    assert not torch.equal(resumed.layer.weight, model.layer.weight)


def test_two_ranks_hold_the_same_average(tmp_path):
    class PerRank(Line):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch + self.global_rank, batch_idx)

    class Keep(Callback):
        def on_train_end(self, trainer, pl_module):
            torch.save(pl_module.layer.weight.detach(), tmp_path / f"{trainer.global_rank}.pt")

    ema = EMAWeights(decay=0.8)
    options = {"strategy": "ddp_fork", "devices": 2, "use_distributed_sampler": False, "enable_checkpointing": False}
    fit(tmp_path, ema, epochs=1, model=PerRank(), callbacks=[Keep()], limit_val_batches=0, **options)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, Line().layer.weight)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_out_of_range_is_refused(decay):
    with pytest.raises(ValueError, match="0 <= decay < 1"):
        EMAWeights(decay=decay)


def test_weights_only_checkpoints_are_refused(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, save_weights_only=True)
    with pytest.raises(ValueError, match="save_weights_only"):
        fit(tmp_path, EMAWeights(), callbacks=[checkpoint])
