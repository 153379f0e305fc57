from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer

diffusers = pytest.importorskip("diffusers", reason="pipelines of diffusers need the extra leyden[diffusion]")

from tiny_pipelines import of_classes, saved, unconditional  # noqa: E402

from callbacks.sample_files import SampleFiles  # noqa: E402
from datamodules.prompts import PromptDataModule  # noqa: E402
from lightning_modules.f_dpm_solver.edm_scheduler import FDPMSolverEDMScheduler  # noqa: E402
from lightning_modules.f_dpm_solver.pipeline_module import DiffusionPipelineModule  # noqa: E402
from lightning_modules.f_dpm_solver.pipeline_schedulers import scheduler_for  # noqa: E402
from lightning_modules.f_dpm_solver.scheduler import FDPMSolverScheduler  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(unconditional(), tmp_path_factory.mktemp("unconditional"))


def batch(*seeds: int) -> dict[str, Any]:
    return {"seed": torch.tensor(seeds), "index": torch.arange(len(seeds))}


def test_a_sample_belongs_to_its_seed_alone(folder: str):
    module = DiffusionPipelineModule(folder, nfe=3)
    assert isinstance(module.scheduler, FDPMSolverScheduler)
    images, calls = module.sample(batch(7, 8, 9))
    assert calls == 3
    assert images.shape == (3, 1, 8, 8)
    alone, _ = module.sample(batch(8))
    assert torch.allclose(images[1], alone[0], atol=1e-6)
    assert (images[0] - images[1]).abs().max() > 0.01


def test_every_sampler_spends_what_it_may(folder: str):
    made = {}
    for name in ("own", "f_dpm", "ddim", "dpmpp_2m", "dpmpp_3m"):
        made[name], calls = DiffusionPipelineModule(folder, sampler=name, nfe=5).sample(batch(7, 8))
        assert calls == 5, name
    for name, images in made.items():
        assert all((images - other).abs().max() > 1e-4 for key, other in made.items() if key != name), name


def test_samplers_agree_when_they_may_call_often(folder: str):
    spacing = {"timestep_spacing": "linspace"}
    made = {
        name: DiffusionPipelineModule(folder, sampler=name, sampler_options=spacing, nfe=40).sample(batch(7, 8))[0]
        for name in ("f_dpm", "dpmpp_2m")
    }
    few, _ = DiffusionPipelineModule(folder, sampler_options=spacing, nfe=5).sample(batch(7, 8))
    near, far = ((images - made["dpmpp_2m"]).square().mean().sqrt() for images in (made["f_dpm"], few))
    assert near < 0.1
    assert near < far / 2


def test_classes(tmp_path: Path):
    module = DiffusionPipelineModule(saved(of_classes(), tmp_path), nfe=3, call_options={"guidance_scale": 2.0})
    images, calls = module.sample({"seed": torch.tensor([1, 2]), "label": [3, 4]})
    assert calls == 3
    assert images.shape == (2, 3, 16, 16)
    assert images.min() >= 0
    assert images.max() <= 1


@pytest.mark.parametrize("stage", ["test", "predict"])
def test_a_run_leaves_files_and_a_sheet(folder: str, tmp_path: Path, stage: str):
    module = DiffusionPipelineModule(folder, nfe=3, reference_nfe=10)
    trainer = Trainer(
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        callbacks=[SampleFiles(shown=4, columns=2)],
    )
    found = getattr(trainer, stage)(module, datamodule=PromptDataModule(samples=5, first_seed=3, batch_size=2))
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == [f"{i:06d}.png" for i in range(5)]
    assert len(list((tmp_path / "figures").glob("samples_*.png"))) == 1
    if stage == "test":
        assert found[0]["test/nfe"] == 3
        assert 0 < found[0]["test/rmse_to_reference"] < 1
    else:
        images = torch.cat([each["image"] for each in found])
        assert torch.allclose(images, module.sample(batch(*range(3, 8)))[0], atol=1e-6)


def test_bad_input_is_one_clear_error(folder: str, tmp_path: Path):
    for options, message in (
        ({}, "either model_folder"),
        ({"model_folder": folder, "hub_name": "a/b"}, "either model_folder"),
        ({"model_folder": folder, "nfe": 0}, "nfe=0"),
        ({"model_folder": folder, "sampler": "magic"}, "no sampler 'magic'"),
        ({"model_folder": folder, "sampler": "heun"}, "a DDPMPipeline cannot sample with heun"),
        ({"model_folder": folder, "sampler": "unipc"}, "a DDPMPipeline cannot sample with unipc"),
        ({"model_folder": folder, "pipeline_class": "DDIMPipeline"}, "pipeline_class=DDPMPipeline"),
        ({"model_folder": folder, "pipeline_class": "NoPipeline"}, "no class of diffusers"),
    ):
        with pytest.raises(ValueError, match=message):
            DiffusionPipelineModule(**options)
    with pytest.raises(FileNotFoundError, match="download a model first"):
        DiffusionPipelineModule(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="`seed`"):
        DiffusionPipelineModule(folder).sample({"label": [1]})


def test_networks_told_the_noise_level_get_schedulers_that_tell_it():
    class Holder:
        scheduler = diffusers.EDMEulerScheduler(sigma_data=0.7)

    assert isinstance(scheduler_for("f_dpm", Holder()), FDPMSolverEDMScheduler)
    assert scheduler_for("dpmpp_2m", Holder()).config.sigma_data == 0.7
    with pytest.raises(ValueError, match="no sampler 'ddim'"):
        scheduler_for("ddim", Holder())
