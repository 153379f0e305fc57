from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from datamodules.rl.transitions import TransitionDataModule
from lightning_modules.r2r2.redundancy import RedundancyReduction
from lightning_modules.r2r2.representation_module import RepresentationModule

SIZES: dict[str, Any] = {"obs_dim": 3, "action_dim": 1, "latent_dim": 8, "hidden": 16}
MEASURES = ("spl", "effective_rank", "effective_rank_centered", "state_probe", "reward_probe")


def batch(seed: int = 0, count: int = 16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {"obs": draw(count, 3), "action": draw(count, 1), "next_obs": draw(count, 3), "reward": draw(count)}


def module(regularizer: RedundancyReduction | None = None, **settings: Any) -> RepresentationModule:
    torch.manual_seed(0)
    made = RepresentationModule(**{**SIZES, **settings}, regularizer=regularizer)
    made.log_dict = lambda *_: None  # type: ignore[assignment]
    return made


def trained(folder: Path, regularizer: RedundancyReduction | None, steps: int = 24, **settings: Any) -> tuple[Trainer, Any]:
    seed_everything(1, verbose=False)
    data = TransitionDataModule(
        "gym:Pendulum-v1", transitions=512, val_transitions=256, test_transitions=256, batch_size=16, root=str(folder)
    )
    model = RepresentationModule(**{**SIZES, **settings}, regularizer=regularizer)
    trainer = Trainer(
        default_root_dir=folder,
        max_steps=steps,
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        num_sanity_val_steps=0,
        val_check_interval=steps,
        check_val_every_n_epoch=None,
    )
    trainer.fit(model, data)
    return trainer, model


def test_the_loss_by_its_definition():
    model, data = module(RedundancyReduction(0.3, 0.5), coef_spl=2.0), batch()
    z, after = model.encoder.zs(data["obs"]), model.encoder.zs(data["next_obs"])
    prediction = model.encoder.zsa(z, data["action"])
    C = z.T @ z / 15
    decorrelation = (C.square().sum() - C.diagonal().square().sum()) / 56
    hinge = (1 - (z.var(0) + 1e-4).sqrt()).relu().mean()
    expected = 2 * (prediction - after).square().mean() + 0.3 * decorrelation + 0.5 * hinge
    assert model.training_step(data, 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_targets_teach_nothing():
    model, data = module(), batch()
    data["next_obs"].requires_grad_()
    data["obs"].requires_grad_()
    model.training_step(data, 0).backward()
    assert data["next_obs"].grad is None
    assert data["obs"].grad is not None
    assert all(weight.grad is not None for weight in model.encoder.parameters())


def test_gradient_norms_are_those_of_the_features():
    model, data = module(RedundancyReduction()), batch()
    with torch.inference_mode():
        norms = model.gradient_norms(data)
    z = model.encoder.zs(data["obs"]).detach().requires_grad_()
    target = model.encoder.zs(data["next_obs"]).detach()
    (gradient,) = torch.autograd.grad((model.encoder.zsa(z, data["action"]) - target).square().mean(), z)
    assert norms["spl"].item() == pytest.approx(gradient.norm().item(), rel=1e-5)
    C = z.detach().T @ z.detach() / 15
    gradient = 0.01 * 4 / (56 * 15) * z.detach() @ (C - C.diagonal().diag())
    assert norms["rr"].item() == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert set(norms) == {"spl", "rr", "var"}
    assert set(module().gradient_norms(data)) == {"spl"}


def test_weights_of_zero_are_no_regulariser_bit_for_bit(tmp_path: Path):
    plain, zero, some = (
        trained(tmp_path, regularizer)[1].encoder.state_dict()
        for regularizer in (None, RedundancyReduction(0.0, 0.0), RedundancyReduction(0.1, 0.1))
    )
    assert all(torch.equal(plain[name], zero[name]) for name in plain)
    assert not all(torch.equal(plain[name], some[name]) for name in plain)


def test_it_learns_and_measures(tmp_path: Path):
    trainer, model = trained(tmp_path, RedundancyReduction(), 240, lr=3e-3)
    found = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert {f"val/{name}" for name in MEASURES} <= set(found)
    assert sum(found[f"grad_share/{name}"] for name in ("spl", "rr", "var")) == pytest.approx(1, abs=1e-5)
    assert found["val/spl"] < 0.3
    assert found["val/state_probe"] < 0.3
    assert 1 < found["val/effective_rank"] <= 8
    data = trainer.datamodule
    with torch.no_grad():
        z = model.representation(data.val_set.obs)
    for name, matrix in {"val/effective_rank": z, "val/effective_rank_centered": z - z.mean(0)}.items():
        shares = torch.linalg.svdvals(matrix) / torch.linalg.svdvals(matrix).sum()
        assert found[name] == pytest.approx((-(shares * shares.log()).sum()).exp().item(), rel=1e-4)
    tested = trainer.test(model, data, verbose=False)[0]
    assert set(tested) == {f"test/{name}" for name in MEASURES}
    assert tested["test/spl"] != found["val/spl"]


def test_a_checkpoint_holds_the_regulariser(tmp_path: Path):
    trainer, model = trained(tmp_path, RedundancyReduction(0.2, latent_scale="sqrt_dim"), 4)
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    loaded = RepresentationModule.load_from_checkpoint(tmp_path / "saved.ckpt", weights_only=True)
    assert loaded.regularizer.specification() == model.regularizer.specification()
    assert torch.equal(loaded.representation(batch()["obs"]), model.representation(batch()["obs"]))


def test_sizes_are_needed():
    with pytest.raises(ValueError, match="obs_dim and action_dim"):
        RepresentationModule(latent_dim=8)


def test_features_of_the_cheetah_spread_over_more_directions(tmp_path: Path):
    ranks = []
    for regularizer in (None, RedundancyReduction()):
        seed_everything(1, verbose=False)
        data = TransitionDataModule("gym:HalfCheetah-v5", root=str(tmp_path))
        model = RepresentationModule(17, 6, 64, 64, regularizer=regularizer)
        options: Any = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
        trainer = Trainer(max_epochs=50, check_val_every_n_epoch=50, accelerator="cpu", use_distributed_sampler=False, **options)
        trainer.fit(model, data)
        ranks.append(trainer.callback_metrics["val/effective_rank"])
    assert ranks[1] > ranks[0] + 1
