"""TLVSModule on a handful of scenes and an untrained model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from datamodules import SceneDataModule
from datamodules.scenes.vocabulary import WORDS
from lightning_modules import TLVSModule
from lightning_modules.tlvs.scene_weights import save_tiny_vlm
from lightning_modules.tlvs.tiny_vlm import TinyVLM

FEW = {"n_train": 48, "n_val": 8, "n_test": 8, "n_unbiased": 8, "null_image_prob": 0.0, "batch_size": 16, "eval_batch_size": 8}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: Any) -> Path:
    torch.manual_seed(0)
    model = TinyVLM(len(WORDS), d_model=16, num_layers=2, num_heads=2)
    torch.nn.init.normal_(model.encoder.out.weight, std=0.3)
    path = tmp_path_factory.mktemp("weights") / "vlm.safetensors"
    save_tiny_vlm(model, WORDS, path)
    return path


def module_and_data(weights: Path, **options: Any) -> tuple[TLVSModule, SceneDataModule]:
    data = SceneDataModule("unified", p_comp=0.5, **FEW)
    settings = {"weights": str(weights), "caption_rows": 8, "lr": 0.05, **options}
    return TLVSModule(**data.model_arguments(), **settings), data


def trainer_for(steps: int, **options: Any) -> Trainer:
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return Trainer(max_steps=steps, max_epochs=-1, enable_checkpointing=False, **quiet, **options)


def fitted(weights: Path, steps: int = 3, **options: Any) -> tuple[TLVSModule, SceneDataModule, Trainer]:
    seed_everything(1, verbose=False)
    module, data = module_and_data(weights, **options)
    trainer = trainer_for(steps)
    trainer.fit(module, datamodule=data)
    return module, data, trainer


def test_calibration_changes_the_vectors_and_nothing_else(weights: Path):
    still, _, _ = fitted(weights, lr=0.0)
    assert torch.allclose(still.method.vectors_Ld.norm(dim=-1), torch.tensor(0.1))
    moved, _, trainer = fitted(weights)
    assert not torch.allclose(moved.method.vectors_Ld, still.method.vectors_Ld)
    assert all(torch.equal(a, b) for a, b in zip(moved.method.gate.buffers(), still.method.gate.buffers(), strict=True))
    model = moved.method.adapter.model
    assert moved.method.adapter.identity() == module_and_data(weights)[0].method.adapter.identity()
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert trainer.callback_metrics["val/loss"].isfinite()
    # what an extraction saw: half of the steps of three batches of 8 captions and 16 questions
    assert {"top_share", "gini", "snr_all_layer0", "snr_sensitive_layer1"} <= set(moved.report)


def test_the_checkpoint_holds_the_vectors_and_not_the_model(weights: Path, tmp_path: Path):
    module, data, trainer = fitted(weights)
    path = tmp_path / "module.ckpt"
    trainer.save_checkpoint(path)
    names = torch.load(path, weights_only=True)["state_dict"]
    assert "method.vectors_Ld" in names
    assert not any("adapter" in name or "encoder" in name for name in names)
    loaded = TLVSModule.load_from_checkpoint(path, weights_only=True)
    assert torch.equal(loaded.method.vectors_Ld, module.method.vectors_Ld)
    assert loaded.report == module.report
    before = loaded.method.vectors_Ld.detach().clone()
    again = trainer_for(3)
    again.fit(loaded, datamodule=data, ckpt_path=path, weights_only=True)
    assert torch.equal(loaded.method.vectors_Ld, before), "a run that goes on must not extract anew"


def test_all_methods_describe_and_answer(weights: Path):
    module, data, trainer = fitted(weights, method="vti")
    results = {}
    for name in ("none", "steering", "vista", "vti", "vcd"):
        module.method.name, module.strengths = name, [4.0]
        first, *others = trainer.test(module, datamodule=data, verbose=False)
        results[name] = {key: value for scores in (first, *others) for key, value in scores.items()}
    assert results["none"].keys() == results["vcd"].keys()
    assert {"test/balanced/chair_i", "test/pope_adversarial/accuracy", "test/pope_random/yes", "test/extraction/gini"} <= set(
        results["none"]
    )
    batch = next(iter(data.test_dataloader()[1]))
    captions = {}
    for name in results:
        module.method.name = name
        captions[name] = module.describe(batch)
    texts = {name: caption[:, :5].tolist() for name, caption in captions.items()}
    assert sum(text != texts["none"] for text in texts.values()) >= 3
    module.method.name, module.method.alpha = "steering", 0.0
    assert torch.equal(module.describe(batch), captions["none"])


def test_a_sweep_takes_the_test_with_each_strength(weights: Path):
    module, data, trainer = fitted(weights, sweep=[0.0, 4.0])
    swept = {key: value for scores in trainer.test(module, datamodule=data, verbose=False) for key, value in scores.items()}
    for strength in (0.0, 4.0):
        module.strengths = [strength]
        alone = {key: value for scores in trainer.test(module, datamodule=data, verbose=False) for key, value in scores.items()}
        for suite in ("", "balanced/", "pope_popular/"):
            own = {key.removeprefix(f"test/{suite}"): value for key, value in alone.items() if key.startswith(f"test/{suite}")}
            mine = {key: value for key, value in own.items() if "/" not in key}
            assert mine
            assert {key: swept[f"test/{suite}alpha_{strength:g}/{key}"] for key in mine} == mine


def test_a_trace_tells_of_each_word(weights: Path):
    module, data, _ = fitted(weights)
    data.setup("test")
    batch = next(iter(data.test_dataloader()[1]))
    traces = module.trace(batch)
    captions = module.describe(batch)
    pad = module.method.adapter.model.pad_id
    assert [trace.tokens.tolist() for trace in traces] == [
        [word for word in caption.tolist() if word != pad] for caption in captions
    ]
    extractor = module.method.extractor
    given = module.caption_prompts(batch)
    given = given | {"input_ids": torch.cat([given["input_ids"], captions], dim=1)}
    steps = extractor.collect([given])
    assert torch.allclose(torch.cat([trace.sensitivity for trace in traces]), steps.sensitivity_S, atol=1e-6)
    assert torch.allclose(torch.cat([trace.entropy for trace in traces]), steps.entropy_S, atol=1e-6)
    assert torch.allclose(torch.cat([trace.strength for trace in traces]), module.method.gate(steps.gate_Sd), atol=1e-6)
    assert module.lorenz[0] == 0
    assert module.lorenz[-1] == pytest.approx(1)
    assert len(module.lorenz) == 21


def test_the_loss_is_the_sum_of_its_parts(weights: Path):
    module, data, _ = fitted(weights)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    terms = module.method.losses({name: value[:8] for name, value in batch["caption"].items()}, batch["question"])
    assert set(terms) == {"sensitive", "other", "answer"}
    logged: dict[str, torch.Tensor] = {}
    module.log_dict = logged.update  # type: ignore[method-assign, assignment]
    module.log = lambda name, value, **options: logged.__setitem__(name, value)  # type: ignore[method-assign, assignment]
    loss = module.training_step(batch, 0)
    assert loss.item() == pytest.approx(sum(term.mean.item() for term in terms.values()), rel=1e-5)
    assert logged["train/other_loss"].item() == pytest.approx(terms["other"].mean.item(), rel=1e-5)


def test_bad_input(weights: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="none, steering, vista, vti, vcd"):
        module_and_data(weights, method="pray")
    save_tiny_vlm(TinyVLM(2), ["<pad>", "<eos>"], tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="other words"):
        module_and_data(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError, match="scenes_vlm"):
        module_and_data(tmp_path / "runs" / "tlvs" / "scenes_vlm")
    with pytest.raises(ValueError, match="words"):
        TLVSModule()
