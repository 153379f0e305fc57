"""Our scheduler in ordinary pipelines of Stable Diffusion."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

diffusers = pytest.importorskip("diffusers", reason="pipelines of diffusers need the extra leyden[diffusion]")
pytest.importorskip("transformers", reason="pipelines of texts need transformers")

from tiny_pipelines import of_texts  # noqa: E402

from lightning_modules.f_dpm_solver.denoiser import Denoiser  # noqa: E402
from lightning_modules.f_dpm_solver.grids import Grid  # noqa: E402
from lightning_modules.f_dpm_solver.pipeline_module import DiffusionPipelineModule  # noqa: E402
from lightning_modules.f_dpm_solver.samplers import get_sampler  # noqa: E402
from lightning_modules.f_dpm_solver.scheduler import FDPMSolverScheduler  # noqa: E402

STEPS = 6


@pytest.fixture(scope="module")
def pipeline() -> Any:
    made = of_texts()
    made.scheduler = FDPMSolverScheduler.from_config(made.scheduler.config)
    return made


def generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in (3, 4)]


def prompts() -> Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def run(pipeline: Any, **options: Any) -> Any:
    settings = {"num_inference_steps": STEPS, "guidance_scale": 1.0, "output_type": "latent"}
    return pipeline(prompt_embeds=prompts(), generator=generators(), **{**settings, **options}).images


@torch.no_grad()
def functional(pipeline: Any, x: Tensor, grid: Grid, **options: Any) -> Tensor:
    def net(latents: Tensor, t_B: Tensor) -> Tensor:
        return pipeline.unet(latents, t_B, encoder_hidden_states=prompts()).sample

    denoiser = Denoiser(net, "epsilon", pipeline.scheduler.schedule)
    return get_sampler("f_dpm", **options).sample(denoiser, x, grid).x


def test_text_to_image(pipeline: Any):
    made = run(pipeline)
    noise = torch.cat([torch.randn(1, 4, 8, 8, generator=generator) for generator in generators()])
    wanted = functional(pipeline, noise, pipeline.scheduler.grid)
    assert (made - wanted).abs().max() < 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("strength", [0.5, 1.0])
@torch.no_grad()
def test_image_to_image(pipeline: Any, strength: float):
    other = diffusers.StableDiffusionImg2ImgPipeline(**pipeline.components, requires_safety_checker=False)
    other.set_progress_bar_config(disable=True)
    image = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    made = run(other, image=image, strength=strength)
    grid, first = pipeline.scheduler.grid, STEPS - int(STEPS * strength) + 1
    made_of = generators()
    posteriors = [pipeline.vae.encode(2 * image[i : i + 1] - 1).latent_dist for i in range(2)]
    latents = [posterior.sample(generator) for posterior, generator in zip(posteriors, made_of, strict=True)]
    noise = torch.cat([torch.randn(1, 4, 8, 8, generator=generator) for generator in made_of])
    clean = torch.cat(latents) * pipeline.vae.config.scaling_factor
    rest = Grid(*(each[first:] for each in (grid.t, grid.a, grid.s)))
    wanted = functional(pipeline, grid.a[first].item() * clean + grid.s[first].item() * noise, rest, first_eps="model")
    assert (made - wanted).abs().max() < 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("strength", [0.6, 1.0])
def test_inpainting_keeps_what_is_outside_the_mask(pipeline: Any, strength: float):
    other = diffusers.StableDiffusionInpaintPipeline(**pipeline.components, requires_safety_checker=False)
    other.set_progress_bar_config(disable=True)
    image = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(2, 1, 16, 16)
    mask[..., 8:] = 1
    size = {"height": 16, "width": 16}
    made = run(other, image=image, mask_image=mask, strength=strength, **size)
    kept = run(other, image=image, mask_image=torch.zeros_like(mask), strength=strength, **size)
    assert torch.equal(made[..., :4], kept[..., :4])
    assert (made[..., 4:] - kept[..., 4:]).abs().min(dim=0).values.max() > 0.1
    assert made.isfinite().all()


def test_a_whole_pipeline_is_saved_and_loaded(pipeline: Any, tmp_path: Path):
    kept = pipeline.scheduler
    try:
        pipeline.scheduler = FDPMSolverScheduler.from_config(kept.config, final="data")
        pipeline.save_pretrained(tmp_path)
        wanted = run(pipeline)
    finally:
        pipeline.scheduler = kept
    loaded = diffusers.DiffusionPipeline.from_pretrained(tmp_path, local_files_only=True)
    loaded.set_progress_bar_config(disable=True)
    assert type(loaded.scheduler) is FDPMSolverScheduler
    assert loaded.scheduler.config.final == "data"
    assert torch.equal(run(loaded), wanted)
    module = DiffusionPipelineModule(str(tmp_path), sampler="own", nfe=3, call_options={"guidance_scale": 3.0})
    batch = {"seed": torch.tensor([5, 6]), "prompt": ["a cat", "dog"]}
    images, calls = module.sample(batch)
    assert images.shape == (2, 3, 16, 16)
    assert calls == 3
    swapped = module.sample({"seed": torch.tensor([5, 6]), "prompt": ["dog", "a cat"]})[0]
    assert (images - swapped).abs().max() > 1e-3
    other = DiffusionPipelineModule(
        str(tmp_path), pipeline_class="StableDiffusionImg2ImgPipeline", nfe=4, call_options={"strength": 0.5}
    )
    images, calls = other.sample({**batch, "image": torch.rand(2, 3, 16, 16)})
    assert images.shape == (2, 3, 16, 16)
    assert calls == 2
