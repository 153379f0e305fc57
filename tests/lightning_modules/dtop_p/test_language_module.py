import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningDataModule
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks import DTopPCallback
from lightning_modules.dtop_p.language_module import MoELanguageModule

VOCABULARY, LENGTH = 11, 8


def windows(count: int) -> list[dict[str, Tensor]]:
    """A language that is easy to learn: each token is the last one plus 1 or 2."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.randint(1, 3, (count, LENGTH + 1), generator=generator)
    return [{"tokens": row} for row in steps.cumsum(dim=1) % VOCABULARY]


class Windows(LightningDataModule):
    def __init__(self, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(windows(64), batch_size=self.batch_size)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(windows(6), batch_size=4)  # type: ignore[arg-type]

    test_dataloader = val_dataloader


def language_model(**options: Any) -> MoELanguageModule:
    torch.manual_seed(0)
    small = {"d_model": 16, "num_layers": 2, "num_heads": 2, "num_experts": 8, "target": 2, "expert_hidden": 8}
    return MoELanguageModule(**{"vocab_size": VOCABULARY, "load_balance": 1e-2, **small, **options})


class Thresholds(Callback):
    def __init__(self) -> None:
        self.p: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *arguments: Any) -> None:
        self.p.append(pl_module.controller.p.item())


def trained(folder: Path, model: MoELanguageModule, steps: int = 6, batch_size: int = 8, **options: Any) -> Trainer:
    settings = {"limit_val_batches": 0, "logger": False, "enable_checkpointing": False, **options}
    trainer = Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    trainer.fit(model, datamodule=Windows(batch_size))
    return trainer


@pytest.mark.parametrize("routing", ["dtopp", "topp", "topk", "dense"])
def test_it_learns(tmp_path: Path, routing: str):
    model = language_model(routing=routing, lr=1e-2)
    trainer = trained(tmp_path, model, 60, limit_val_batches=None, check_val_every_n_epoch=None, val_check_interval=60)
    loss = trainer.callback_metrics["val/loss"].item()
    assert math.log(2) - 0.05 < loss < 0.6 * math.log(VOCABULARY), "below chance, above the entropy of the language"
    if routing == "topk":
        assert trainer.callback_metrics["val/active"].item() == 2
    if routing == "dtopp":
        assert trainer.callback_metrics["train/active"].item() == pytest.approx(2, rel=0.15)
        assert trainer.callback_metrics["val/expert_flops"].item() == pytest.approx(
            6 * 16 * 8 * 2 * trainer.callback_metrics["val/active"].item(), rel=1e-4
        )


def test_dense_has_the_operations_of_the_target():
    dense, mixture = language_model(routing="dense"), language_model(routing="topk")
    count = sum(p.numel() for p in dense.decoder.blocks[0].feed_forward.parameters())  # type: ignore[union-attr]
    assert count == 2 * 3 * 16 * 8
    assert sum(p.numel() for p in mixture.decoder.blocks[0].feed_forward.experts.parameters()) == 4 * count  # type: ignore[union-attr]


def test_micro_batches_move_p_as_one_batch_does(tmp_path: Path):
    one, four = Thresholds(), Thresholds()
    trained(tmp_path, language_model(load_balance=0.0), 3, 16, callbacks=[one])
    trained(tmp_path, language_model(load_balance=0.0), 3, 4, callbacks=[four], accumulate_grad_batches=4)
    assert four.p[3::4] == pytest.approx(one.p, abs=1e-7)
    assert len(set(one.p)) == 3
    assert four.p[0] == four.p[1] == four.p[2] != four.p[3], "p is constant within a step"


def test_a_callback_and_the_module_act_once(tmp_path: Path):
    with_callback, without = Thresholds(), Thresholds()
    model = language_model()
    trainer = trained(tmp_path, model, callbacks=[DTopPCallback(), with_callback])
    trained(tmp_path, language_model(), callbacks=[without])
    assert model.controller is not None
    assert model.controller.num_updates == 6
    assert with_callback.p == without.p
    assert model.control is not None
    assert model.control.active.isfinite(), "a second step would find nothing observed"
    assert trainer.callback_metrics["train/active"].isfinite()
    assert trainer.callback_metrics["moe/p"].item() == pytest.approx(with_callback.p[-1])
    active = [trainer.callback_metrics[f"moe/active_layer{layer}"].item() for layer in (0, 1)]
    assert trainer.callback_metrics["moe/active"].item() == pytest.approx(sum(active) / 2)
    assert trainer.callback_metrics["moe/theta_layer1"].item() == pytest.approx(1, abs=0.1)


def test_two_callbacks_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="two DTopPCallbacks"):
        trained(tmp_path, language_model(), callbacks=[DTopPCallback(), DTopPCallback()])
    with pytest.raises(ValueError, match="got -1"):
        DTopPCallback(-1)


def test_evaluation_leaves_the_controller_alone(tmp_path: Path):
    model = language_model()
    trained(tmp_path, model)
    assert model.controller is not None
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(
        default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    first = trainer.test(model, datamodule=Windows(), verbose=False)
    assert first == trainer.test(model, datamodule=Windows(), verbose=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.controller._seen_2L.any()
    assert first[0]["test/train_active"] == pytest.approx(model.mean_active.item())
    topk = language_model(routing="topk")
    (measured,) = trainer.test(topk, datamodule=Windows(), verbose=False)
    assert (measured["test/train_active"], measured["test/active"], measured["test/flops_matched"]) == (2, 2, 1)


def test_a_loaded_model_has_the_trained_threshold(tmp_path: Path):
    model = language_model()
    trainer = trained(tmp_path, model)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = MoELanguageModule.load_from_checkpoint(tmp_path / "model.ckpt")
    assert model.controller is not None
    assert loaded.controller is not None
    assert loaded.controller.p.item() == model.controller.p.item() != model.controller.p0.item()
    assert loaded.mean_active == model.mean_active


def test_residual_branches_begin_small():
    block: Any = language_model(num_layers=2, d_model=32, expert_hidden=32).decoder.blocks[0]
    assert block.feed_forward.experts.w_in.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.feed_forward.experts.w_out.std().item() == pytest.approx(0.02 / 2, rel=0.05)  # 1 / sqrt(2 L)


def test_likelihoods_of_the_tokens():
    model = language_model().eval()
    batch = {"tokens": torch.stack([row["tokens"] for row in windows(3)])}
    likelihood = model.predict_step(batch, 0)
    logits = model(batch["tokens"][:, :-1])
    assert likelihood.shape == (3, LENGTH)
    assert likelihood[1, 4].item() == pytest.approx(logits[1, 4].log_softmax(-1)[batch["tokens"][1, 5]].item(), abs=1e-6)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="needs vocab_size"):
        MoELanguageModule()
    with pytest.raises(ValueError, match="must be a whole number"):
        language_model(routing="topk", target=2.5)
    with pytest.raises(ValueError, match="8 experts"):
        language_model(target=9)
