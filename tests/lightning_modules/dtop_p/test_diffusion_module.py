from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from callbacks import DTopPCallback, EMAWeights
from datamodules import LabelledImageDataModule
from lightning_modules.dtop_p import diffusion_module
from lightning_modules.dtop_p.diffusion_module import MoEDiffusionModule
from lightning_modules.generative.image_classifier import trained_classifier
from lightning_modules.generative.rectified_flow import logit_normal_mass

torch.set_num_threads(1)
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}


def model(**options: Any) -> MoEDiffusionModule:
    torch.manual_seed(0)
    small = {"d_model": 16, "num_layers": 2, "num_heads": 2, "num_experts": 8, "target": 2, "expert_hidden": 8, "patch": 4}
    sizes = {"image_size": 8, "channels": 1, "num_classes": 10}
    return MoEDiffusionModule(**{**sizes, **small, "activation": "gelu", "load_balance": 1e-2, **options})


def awake(module: MoEDiffusionModule) -> MoEDiffusionModule:
    """Leave the initial state, in which the network is 0 whatever it reads."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module


def digits(**options: Any) -> LabelledImageDataModule:
    return LabelledImageDataModule(**{"train_size": 96, "val_size": 12, "test_size": 23, "batch_size": 16, **options})


def batch(count: int = 6) -> dict[str, Tensor]:
    data = digits(eval_batch_size=count, test_size=100)
    data.setup("test")
    return next(iter(data.predict_dataloader()))


def trained(folder: Path, module: MoEDiffusionModule, steps: int, **options: Any) -> Trainer:
    settings = {"limit_val_batches": 0, "enable_checkpointing": False, **options}
    trainer = Trainer(default_root_dir=folder, max_steps=steps, **QUIET, **settings)
    trainer.fit(module, datamodule=digits())
    return trainer


def measured(folder: Path, module: MoEDiffusionModule, **data: Any) -> dict[str, float]:
    (found,) = Trainer(default_root_dir=folder, **QUIET).test(module, datamodule=digits(**data), verbose=False)
    return dict(found)


def test_what_the_network_learns(monkeypatch: pytest.MonkeyPatch):
    module, images = model(routing="dense", class_dropout=0.25), batch(100)
    seen: dict[str, Tensor] = {}

    def run(point: Tensor, t: Tensor, label: Tensor) -> tuple[Tensor, list[Any]]:
        seen.update(point=point, t=t, label=label)
        return 0.5 * images["image"], []

    monkeypatch.setattr(module, "_run", run)
    monkeypatch.setattr(module, "log", lambda *arguments, **options: None)
    loss = module.training_step(images, 0)
    t = seen["t"].view(-1, 1, 1, 1)
    noise = (seen["point"] - (1 - t) * images["image"]) / t
    assert noise.mean().item() == pytest.approx(0, abs=0.05)
    assert noise.std().item() == pytest.approx(1, abs=0.05)
    target = noise - images["image"]
    assert loss.item() == pytest.approx((0.5 * images["image"] - target).square().mean().item(), rel=1e-4)
    logits = torch.logit(seen["t"])
    assert torch.corrcoef(torch.stack([logits, noise[:, 0, 0, 0]]))[0, 1].abs() < 0.3
    assert abs(logits.mean()) < 0.3
    assert 0.8 < logits.std() < 1.2
    hidden = seen["label"] == 10
    assert torch.equal(seen["label"][~hidden], images["label"][~hidden])
    assert 13 <= hidden.sum() <= 37
    first = {name: value.clone() for name, value in seen.items()}
    images = {name: value[[7, 3]] for name, value in images.items()}
    module.training_step(images, 1)
    assert all(torch.equal(seen[name], first[name][[7, 3]]) for name in seen), "what is random belongs to the image"


@pytest.mark.parametrize("routing", ["dtopp", "topp", "topk", "dense"])
def test_it_learns(tmp_path: Path, routing: str):
    module = model(routing=routing, lr=1e-2)
    before = measured(tmp_path, module)
    trained(tmp_path, module, 30)
    after = measured(tmp_path, module)
    assert after["test/loss"] < 0.8 * before["test/loss"]
    assert ("test/active_decile3" in after) == (routing != "dense")
    if routing == "topk":
        assert [after[f"test/active_decile{place}"] for place in range(10)] == [2] * 10
        assert after["test/flops_matched"] == 1
    if routing != "dense":
        assert after["test/expert_flops"] == pytest.approx(4 * 16 * 8 * 2 * after["test/active"], rel=1e-4)


class Active(Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *arguments: Any) -> None:
        self.seen.append(pl_module.control.active.item())


def test_the_controller_holds_the_target(tmp_path: Path):
    active, module = Active(), model(target=3, p_init=0.3, kp=0.3, ki=0.2)
    trained(tmp_path, module, 50, callbacks=[DTopPCallback(), active])
    assert abs(active.seen[0] / 3 - 1) > 0.3
    assert abs(sum(active.seen[-20:]) / 20 / 3 - 1) < 0.05
    assert module.controller is not None
    assert module.controller.num_updates == 50


def test_an_evaluation_is_always_the_same(tmp_path: Path):
    module = awake(model())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = measured(tmp_path, module, eval_batch_size=4)
    assert measured(tmp_path, module, eval_batch_size=4) == pytest.approx(found, rel=0, abs=0, nan_ok=True)
    assert measured(tmp_path, module, eval_batch_size=23, seed=5) == pytest.approx(found, rel=1e-5, nan_ok=True)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.controller is not None
    assert not module.controller._seen_2L.any()
    mass = logit_normal_mass(torch.linspace(0, 1, 11))
    for name in ("loss", "active"):
        deciles = torch.tensor([found[f"test/{name}_decile{place}"] for place in range(10)])
        assert found[f"test/{name}"] == pytest.approx((mass * deciles).sum().item(), rel=1e-5)
        assert deciles.std() > 1e-3


def test_the_times_of_an_evaluation(monkeypatch: pytest.MonkeyPatch):
    module = awake(model(eval_times=20))
    monkeypatch.setattr(module, "log", lambda *arguments, **options: None)
    found = module.validation_step(batch(3), 0)["counts"]
    assert found.shape == (2, 20 * 3, 4)
    assert found.min() >= 1
    assert model(routing="dense").transformer.blocks[0].feed_forward.up.weight.shape == (2 * 8, 16)


def test_samples():
    module = awake(model()).eval()
    labels, seeds = torch.tensor([3, 0, 9]), torch.tensor([11, 12, 13])
    made = module.sample(labels, seeds, steps=3)
    assert made.shape == (3, 1, 8, 8)
    assert torch.equal(module.sample(labels, seeds, steps=3), made)
    torch.testing.assert_close(module.sample(labels[1:], seeds[1:], steps=3), made[1:])
    assert not torch.allclose(module.sample(labels, seeds + 1, steps=3), made)
    # one step: start - velocity, in which guidance is linear
    plain, none, more = (module.sample(labels, seeds, 1, guidance) for guidance in (1.0, 0.0, 3.0))
    torch.testing.assert_close(more, 3 * plain - 2 * none)
    torch.testing.assert_close(none, module.sample(torch.full_like(labels, 10), seeds, 1, 1.0))
    assert not torch.allclose(plain, none)
    images = batch(3)
    assert torch.equal(module.predict_step(images, 0), module.sample(images["label"], images["seed"]))


def test_ranks_share_the_samples_to_judge(monkeypatch: pytest.MonkeyPatch):
    module = awake(model(quality_samples=25, sampling_steps=1)).eval()
    monkeypatch.setattr(module, "_trainer", SimpleNamespace(world_size=2))
    ((image, label),) = module._samples(slice(None))
    monkeypatch.setattr(diffusion_module, "MANY", 5)
    for rank in (0, 1):
        mine = slice(rank, None, 2)
        shares = list(module._samples(mine))
        assert len(shares) == 3, "sharded models need all ranks to call as often"
        torch.testing.assert_close(torch.cat([part for part, _ in shares]), image[mine])
        assert torch.equal(torch.cat([part for _, part in shares]), label[mine])
    assert label.bincount().tolist() == [3] * 5 + [2] * 5


def test_quality_is_that_of_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diffusion_module, "trained_classifier", partial(trained_classifier, steps=100, batch_size=32))
    module = awake(model(quality_samples=20, sampling_steps=1))
    found = measured(tmp_path, module, test_size=50)
    assert found["test/classifier_accuracy"] > 0.5
    assert found["test/sample_accuracy"] < 0.5, "noise"
    truth = batch(50)
    first = torch.stack([(truth["label"] == number).nonzero()[0, 0] for number in range(10)])
    monkeypatch.setattr(module, "sample", lambda label, seed, guidance: truth["image"][first[label]])
    assert set(truth["label"].tolist()) == set(range(10))
    better = measured(tmp_path, module, test_size=50)
    assert 0 < better["test/frechet_of_training_images"] == found["test/frechet_of_training_images"]
    assert better["test/classifier_accuracy"] == found["test/classifier_accuracy"]
    assert better["test/sample_accuracy"] > 0.5
    assert better["test/frechet_classifier_features"] < 0.7 * found["test/frechet_classifier_features"]


def test_a_moving_average_leaves_the_threshold_alone(tmp_path: Path):
    module = model()
    trainer = trained(tmp_path, module, 6, callbacks=[EMAWeights(decay=0.5)], enable_checkpointing=True)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    average, live = checkpoint["state_dict"], checkpoint["current_model_state"]
    assert not torch.equal(average["transformer.head.weight"], live["transformer.head.weight"])
    loaded = MoEDiffusionModule.load_from_checkpoint(tmp_path / "model.ckpt")
    assert torch.equal(loaded.transformer.head.weight, average["transformer.head.weight"])
    assert loaded.controller is not None
    assert loaded.controller.p.item() == live["controller.p"].item() != loaded.controller.p0.item()


def test_bad_input_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="needs image_size, channels and num_classes"):
        MoEDiffusionModule()
    with pytest.raises(ValueError, match="multiple of 10"):
        model(eval_times=15)
    with pytest.raises(ValueError, match=r"class_dropout=1\.0"):
        model(class_dropout=1.0)
    with pytest.raises(ValueError, match="needs a class_dropout above 0"):
        model(class_dropout=0.0)
    with pytest.raises(ValueError, match="sampling_steps=0"):
        model(sampling_steps=0)
    with pytest.raises(ValueError, match="activation 'relu'"):
        model(activation="relu")
    images = batch(2)
    del images["seed"]
    with pytest.raises(ValueError, match="batches with a `seed`"):
        model().training_step(images, 0)
