import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from callbacks import EMAWeights
from datamodules import GaussianMixtureDataModule, LabelledImageDataModule
from lightning_modules import DiffusionModule, MixtureOracleModule, ResidualMLP
from lightning_modules.f_dpm_solver import sampler_module
from lightning_modules.f_dpm_solver.sampler_module import SAMPLE
from lightning_modules.generative.counted_random import normal
from lightning_modules.generative.image_classifier import trained_classifier

torch.set_num_threads(1)
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}
FEW: dict[str, Any] = {"samplers": ["ddim", "f_dpm", "heun"], "nfe": [5, 8], "num_samples": 40, "reference_steps": 40}


def points(**options: Any) -> GaussianMixtureDataModule:
    return GaussianMixtureDataModule(**{"train_size": 64, "val_size": 10, "test_size": 11, "batch_size": 16, **options})


def learner(**options: Any) -> DiffusionModule:
    torch.manual_seed(0)
    return DiffusionModule(ResidualMLP(width=32, blocks=2, dimension=2), sigma_data=0.72, **{**FEW, **options})


def oracle(**options: Any) -> MixtureOracleModule:
    told = {name: value for name, value in points().model_arguments().items() if name != "dimension"}
    return MixtureOracleModule(**told, **{**FEW, **options})


def measured(folder: Path, module: Any, data: Any = None) -> dict[str, float]:
    (found,) = Trainer(default_root_dir=folder, **QUIET).test(module, datamodule=data or points(), verbose=False)
    return dict(found)


def trained(folder: Path, module: Any, steps: int, data: Any = None, **options: Any) -> Trainer:
    trainer = Trainer(
        default_root_dir=folder, max_steps=steps, **QUIET, **{"limit_val_batches": 0, "enable_checkpointing": False, **options}
    )
    trainer.fit(module, datamodule=data or points())
    return trainer


@pytest.mark.parametrize("prediction", ["edm", "eps", "v"])
def test_it_learns(tmp_path: Path, prediction: str):
    module, data = learner(prediction=prediction, num_samples=0, lr=1e-2), points(num_components=2, std=0.02)
    before = measured(tmp_path, module, data)["test/loss"]
    trained(tmp_path, module, 60, data)
    assert measured(tmp_path, module, data)["test/loss"] < 0.8 * before


def test_noise_levels_are_log_normal_and_belong_to_the_sample(monkeypatch: pytest.MonkeyPatch):
    module, seen = learner(noise_mean=-0.5, noise_std=0.8), {}

    def loss(clean: Tensor, noise: Tensor, sigma_B: Tensor) -> Tensor:
        seen.update(clean=clean, noise=noise, sigma=sigma_B)
        return sigma_B

    monkeypatch.setattr(module.model, "loss", loss)
    monkeypatch.setattr(module, "log", lambda *arguments, **options: None)
    batch = {"point": torch.zeros(2_000, 2), "seed": torch.arange(2_000)}
    module.training_step(batch, 0)
    assert seen["sigma"].log().mean().item() == pytest.approx(-0.5, abs=0.06)
    assert seen["sigma"].log().std().item() == pytest.approx(0.8, abs=0.04)
    assert seen["noise"].std().item() == pytest.approx(1, abs=0.05)
    assert torch.corrcoef(torch.stack([seen["sigma"].log(), seen["noise"][:, 0]]))[0, 1].abs() < 0.08
    first = seen["sigma"]
    module.training_step({name: value[[7, 3]] for name, value in batch.items()}, 1)
    assert torch.equal(seen["sigma"], first[[7, 3]])


def test_an_evaluation_takes_the_middles_of_equal_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module, levels = learner(eval_levels=4, noise_mean=0.3, noise_std=2.0, num_samples=0), []

    def loss(clean: Tensor, noise: Tensor, sigma_B: Tensor) -> Tensor:
        levels.append(sigma_B[0].item())
        return sigma_B

    monkeypatch.setattr(module.model, "loss", loss)
    found = measured(tmp_path, module, points(eval_batch_size=11))
    # quantiles 1/8, 3/8, 5/8 and 7/8 of the normal distribution
    expected = [math.exp(0.3 + 2 * quantile) for quantile in (-1.15035, -0.31864, 0.31864, 1.15035)]
    assert levels == pytest.approx(expected, rel=1e-4)
    assert found["test/loss"] == pytest.approx(sum(expected) / 4, rel=1e-4)


def test_samplers_of_the_exact_network(tmp_path: Path):
    found = measured(tmp_path, oracle(nfe=[5, 40]))
    assert {name: found[f"test/{name}/nfe_5/calls"] for name in FEW["samplers"]} == {"ddim": 5, "f_dpm": 5, "heun": 4}
    errors = {name: [found[f"test/{name}/nfe_{nfe}/rmse_to_reference"] for nfe in (5, 40)] for name in FEW["samplers"]}
    assert errors["f_dpm"][0] < 0.5 * errors["ddim"][0]
    assert errors["f_dpm"][1] < errors["ddim"][1] < 0.3 * errors["ddim"][0]
    assert found["test/heun/nfe_5/frechet_coordinates"] > 10 * found["test/f_dpm/nfe_5/frechet_coordinates"]
    assert 0 < found["test/reference/frechet_coordinates"] < 0.2


def test_the_reference_is_exact_for_one_gaussian():
    module = MixtureOracleModule([[0.3]], [0.5], [1.0], reference_steps=200, sigma_max=10.0, sigma_min=0.05)
    noise = torch.ones(1, 1)
    end = module.noise_range.reference(module.denoiser(), noise, module.reference_steps)
    # x = sqrt(1 + 10^2) is the noisy sample; the flow scales its distance from the mean by the ratio of deviations
    expected = 0.3 + math.sqrt((0.25 + 0.05**2) / (0.25 + 100)) * (math.sqrt(101) - 0.3)
    assert end.item() == pytest.approx(expected, rel=1e-6)


def test_a_comparison_does_not_depend_on_batches_and_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module, seeds = learner(), torch.arange(12)
    torch.nn.init.normal_(module.model.network.head.weight, std=0.1)  # type: ignore[union-attr, arg-type]
    whole = module.sample(seeds, "f_dpm", 6)
    assert torch.allclose(module.sample(seeds[5:9], "f_dpm", 6), whole[5:9], atol=1e-5)
    assert torch.equal(normal(seeds, SAMPLE, (2,))[3], normal(seeds[3:4], SAMPLE, (2,))[0])
    first = measured(tmp_path, module)
    monkeypatch.setattr(sampler_module, "MANY", 7)
    assert measured(tmp_path, module) == pytest.approx(first, rel=1e-4, abs=1e-5)
    assert module.sample(seeds).shape == (12, 2)
    assert not torch.allclose(module.sample(seeds, "ddim", 6), whole, atol=1e-3)


def test_each_process_makes_its_share():
    module, data = oracle(num_samples=11), points()
    data.setup("test")
    shares = []
    for rank in range(2):
        module._trainer = SimpleNamespace(global_rank=rank, world_size=2, datamodule=data)  # type: ignore[assignment]
        shares.append(torch.arange(11)[module._mine])
    module._trainer = None
    assert sorted(torch.cat(shares).tolist()) == list(range(11))


def test_images_are_judged_by_a_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampler_module, "trained_classifier", partial(trained_classifier, batch_size=32))
    data = LabelledImageDataModule(train_size=200, val_size=10, test_size=60, batch_size=16)
    torch.manual_seed(0)
    options = {**FEW, "samplers": ["ddim"], "nfe": [5], "classifier_steps": 100}
    module = DiffusionModule(ResidualMLP(width=16, blocks=1, image_size=8, channels=1), **options)
    found = measured(tmp_path, module, data)
    assert found["test/classifier_accuracy"] > 0.6
    real, _ = data.labelled_images("train")
    monkeypatch.setattr(type(module.noise_range), "sample", lambda self, name, denoiser, noise, nfe: (real[: len(noise)], nfe))
    same = measured(tmp_path, module, data)
    assert same["test/ddim/nfe_5/frechet_classifier_features"] < 0.2 * found["test/ddim/nfe_5/frechet_classifier_features"]
    assert same["test/ddim/nfe_5/mmd"] < 0.2 * found["test/ddim/nfe_5/mmd"]


def test_the_test_uses_averaged_weights(tmp_path: Path):
    module = learner(num_samples=0)
    trainer = trained(tmp_path, module, 8, callbacks=[EMAWeights(decay=0.5)], enable_checkpointing=True)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    average, live = checkpoint["state_dict"], checkpoint["current_model_state"]
    assert not torch.equal(average["model.network.head.weight"], live["model.network.head.weight"])
    assert torch.equal(average["model.network.fourier.frequencies"], live["model.network.fourier.frequencies"])
    loaded = DiffusionModule.load_from_checkpoint(tmp_path / "model.ckpt", network=ResidualMLP(width=32, blocks=2, dimension=2))
    assert torch.equal(loaded.model.network.head.weight, average["model.network.head.weight"])  # type: ignore[union-attr, arg-type]


def test_the_residual_network():
    torch.manual_seed(0)
    network, x, level = ResidualMLP(width=8, blocks=2, image_size=4, channels=3), torch.randn(3, 3, 4, 4), torch.randn(3)
    assert not network(x, level).any(), "the head begins as 0"
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    y = network(x, level)
    assert y.shape == x.shape
    y.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())
    assert not torch.allclose(network(x, level + 0.2), y, atol=1e-3)
    assert torch.allclose(network(x[1:2], level[1:2])[0], y[1], atol=1e-5)


def test_bad_input_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="unknown sampler dpm; there are: .*dpmpp_2m"):
        learner(samplers=["dpm"])
    with pytest.raises(ValueError, match=r"nfe=\[1\]"):
        learner(nfe=[1])
    with pytest.raises(ValueError, match="networks know no level 0"):
        learner(sigma_min=0.0)
    with pytest.raises(ValueError, match="eval_levels=0"):
        learner(eval_levels=0)
    with pytest.raises(ValueError, match="either image_size and channels or dimension"):
        ResidualMLP()
    with pytest.raises(ValueError, match="fourier_features=3"):
        ResidualMLP(dimension=2, fourier_features=3)
    with pytest.raises(ValueError, match="needs means, stds and weights"):
        MixtureOracleModule()
    with pytest.raises(ValueError, match="need a `seed`"):
        learner().training_step({"point": torch.zeros(2, 2)}, 0)
    broken = learner(samplers=["ddim"])
    broken.model.network = nn.Linear(2, 2)
    broken.model.forward = lambda x, sigma: x * torch.nan  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="NaN or Inf in call 1 of 5"):
        broken.sample(torch.arange(2), nfe=5, sampler="ddim")
