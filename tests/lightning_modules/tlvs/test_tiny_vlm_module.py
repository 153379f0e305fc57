import math
from pathlib import Path

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from datamodules import SceneDataModule
from lightning_modules import SceneVLMModule
from lightning_modules.tlvs.export import export
from lightning_modules.tlvs.scene_weights import load_tiny_vlm
from lightning_modules.tlvs.tiny_vlm import response_mask


def data_and_module(**options) -> tuple[SceneDataModule, SceneVLMModule]:
    torch.manual_seed(0)
    data = SceneDataModule("unified", n_train=48, n_val=16, n_test=30, n_unbiased=64, batch_size=24, eval_batch_size=16)
    return data, SceneVLMModule(**data.model_arguments(), **{"caption_rows": 12, **options})


def trainer(folder: Path, steps: int, **options) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    return Trainer(
        default_root_dir=folder, max_steps=steps, accelerator="cpu", use_distributed_sampler=False, num_sanity_val_steps=0,
        **{**quiet, **options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, SceneDataModule, SceneVLMModule]:
    data, module = data_and_module(stage_steps=[4, 2, 20, 12])
    run = trainer(tmp_path_factory.mktemp("run"), 38, check_val_every_n_epoch=None, val_check_interval=19)
    run.fit(module, data)
    return run, data, module


class Watch(SceneVLMModule):
    """Notes which parameters each step changes, its loss and its learning rate."""

    def on_train_batch_start(self, batch, batch_idx):
        self.before = {name: value.detach().clone() for name, value in self.named_parameters()}
        self.rates = [*getattr(self, "rates", []), self.optimizers().param_groups[0]["lr"]]

    def on_train_batch_end(self, outputs, batch, batch_idx):
        moved = {name.split(".")[1 if name.startswith("model.") else 0] for name, value in self.named_parameters()
                 if not value.equal(self.before[name])}  # fmt: skip
        self.moved = [*getattr(self, "moved", []), moved]


def test_what_each_stage_trains(tmp_path: Path):
    torch.manual_seed(0)
    data, _ = data_and_module()
    module = Watch(**data.model_arguments(), caption_rows=12, stage_steps=[2, 2, 2, 2])
    trainer(tmp_path, 9).fit(module, data)
    encoder, decoder = {"encoder", "object_head", "colour_head"}, {"embedding", "word_positions", "blocks", "norm", "head"}
    assert module.moved[:2] == [encoder] * 2
    assert module.moved[2:4] == [decoder] * 2, "text alone: no visual position is trained"
    assert module.moved[4:8] == [decoder | {"visual_positions"}] * 4
    assert module.moved[8] == set(), "after the last stage nothing moves"
    assert module.rates == pytest.approx([0.002, 0.001] * 4 + [0.0])


def test_it_learns(trained):
    run, _, module = trained
    metrics = run.callback_metrics
    assert metrics["val/caption_loss"] < 0.75 * math.log(len(module.hparams["words"]))
    assert metrics["val/question_loss"] < 1.0
    assert metrics["val/loss"].item() == pytest.approx((metrics["val/caption_loss"] + metrics["val/question_loss"]).item())


def test_test_metrics(trained):
    run, data, module = trained
    (results, *others) = run.test(module, data, verbose=False)
    found = results | {name: value for other in others for name, value in other.items()}
    names = {"chair_i", "chair_s", "recall", "f1", "malformed", "objects"}
    expected = {f"test/{name}" for name in names} | {f"test/balanced/{name}" for name in names}
    expected |= {f"test/pope_{kind}/{name}" for kind in ("random", "popular", "adversarial") for name in ("accuracy", "yes")}
    assert set(found) == expected
    assert all(0 <= value <= (12 if name.endswith("objects") else 1) for name, value in found.items())


def test_loss_is_the_mean_over_the_words_of_responses(trained):
    _, data, module = trained
    batch = next(iter(data.val_dataloader()))["caption"]
    total, count = module._word_loss(batch)
    logits = module(batch).log_softmax(dim=-1)
    by_hand, words = 0.0, batch["input_ids"]
    lengths = (words != 0).sum(dim=1)
    for row in range(len(words)):
        for t in range(1, int(lengths[row])):
            by_hand -= logits[row, t - 1, words[row, t]].item()
    assert total.item() == pytest.approx(by_hand, rel=1e-4)
    assert count.item() == (lengths - 1).sum().item() == response_mask(words, batch["prompt_length"]).sum().item()
    question = next(iter(data.val_dataloader()))["question"]
    assert module._word_loss(question)[1].item() == 2 * len(question["index"]), "the answer and the end"


def test_object_loss_by_hand(trained):
    _, data, module = trained
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))["unbiased"]
    visual = module.model.encoder(batch["pixels"])
    evidence, colours = module.object_head(visual), module.colour_head(visual).log_softmax(dim=-1)
    presence, wrong, count = 0.0, 0.0, 0
    for row in range(len(visual)):
        for thing in range(12):
            logit = torch.logsumexp(evidence[row, :, thing], dim=0).item()
            there = thing in batch["objects"][row].tolist()
            presence += math.log1p(math.exp(-logit if there else logit))
        for cell, colour in enumerate(batch["colours"][row].tolist()):
            if colour >= 0:
                wrong, count = wrong - colours[row, cell, colour].item(), count + 1
    assert module._object_loss(batch).item() == pytest.approx(presence / (12 * len(visual)) + wrong / count, rel=1e-4)


def test_export_and_import(tmp_path: Path):
    data, module = data_and_module(stage_steps=[1, 1, 1, 1])
    checkpoint = ModelCheckpoint(tmp_path, filename="last")
    trainer(tmp_path, 2, enable_checkpointing=True, callbacks=[checkpoint]).fit(module, data)
    out = tmp_path / "folder" / "vlm.safetensors"
    export(Path(checkpoint.best_model_path), out)
    model, words = load_tiny_vlm(out)
    assert words == module.hparams["words"]
    assert not model.training
    assert all(value.equal(model.state_dict()[name]) for name, value in module.model.state_dict().items())
    assert out.stat().st_size < 1_000_000
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="no checkpoint of SceneVLMModule"):
        export(tmp_path / "other.ckpt", out)


def test_files_that_are_not_the_model(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="lightning_modules.tlvs.export"):
        load_tiny_vlm(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(ValueError, match="no safetensors file"):
        load_tiny_vlm(tmp_path / "text")
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="has the format None"):
        load_tiny_vlm(tmp_path / "x.safetensors")


def test_refusals(tmp_path: Path):
    with pytest.raises(ValueError, match="needs words"):
        SceneVLMModule()
    data, module = data_and_module(caption_rows=0)
    with pytest.raises(ValueError, match="caption_rows=0"):
        trainer(tmp_path, 1).fit(module, data)
    assert data_and_module(stage_steps=[5, 1, 2, 3])[1].trainer_defaults() == {"max_steps": 11}
