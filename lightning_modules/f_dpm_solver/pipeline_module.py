"""Samples of a pretrained pipeline of diffusers with a sampler of choice.

Legend: B samples, images are ``[B, C, H, W]`` in [0, 1].
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import LightningModule
from torch import Tensor
from torchmetrics import MeanMetric, MeanSquaredError

from lightning_modules.f_dpm_solver.diffusers_extra import diffusers
from lightning_modules.f_dpm_solver.pipeline_schedulers import scheduler_for, steps_for_calls

ARGUMENTS = {"prompt": "prompt", "label": "class_labels", "image": "image"}
"""Argument of a pipeline by the name in a batch."""

NETWORKS = ("unet", "transformer")
"""Names of the network that a pipeline calls at each step."""


class DiffusionPipelineModule(LightningModule):
    """Sample with the pipeline of a folder and its own scheduler or another; nothing is trained, nothing goes into a checkpoint.

    A batch has ``seed`` int64 ``[B]`` and what the pipeline asks for: ``prompt`` or ``label``, lists, or ``image`` ``[B, 3, H, W]``
    in [0, 1]. The noise of a sample is made of its seed alone, on the CPU: results do not depend on batch size and number of
    processes. ``test`` and ``predict`` give the images; ``test`` also logs

    - ``test/nfe``: calls of the network that were counted for a batch;
    - ``test/rmse_to_reference``: root mean square distance from what many steps of ``reference`` make of the same noise, for
      images in [0, 1]; only with ``reference_nfe``.

    Args:
        model_folder: folder of a pipeline, as its ``save_pretrained`` writes it. Nothing is looked for on the hub.
        hub_name: name of a pipeline on the hub, in its place; downloads it.
        sampler: ``own`` for the folder's own scheduler, or ``f_dpm``, ``ddim``, ``euler``, ``heun``, ``dpmpp_2m``, ``dpmpp_3m``,
            ``unipc`` or ``deis``.
        sampler_options: further options of the scheduler, such as ``solver_order`` or ``timestep_spacing``; what is not given is as
            in the folder.
        nfe: calls of the network for a batch.
        pipeline_class: name of a class of diffusers to load the folder as, such as ``StableDiffusionImg2ImgPipeline``; None takes
            the one that the folder names.
        call_options: further arguments of the pipeline, such as ``guidance_scale``, ``height`` or ``strength``.
        dtype: precision of the networks.
        reference: sampler of the reference.
        reference_options: further options of its scheduler; give it the ``timestep_spacing`` of the sampler, so that both begin at
            the same noise level.
        reference_nfe: its calls of the network; 0: no reference.

    Raises:
        FileNotFoundError: if there is no such folder.
        ImportError: without diffusers.
        ValueError: if there is no such sampler or pipeline, or an option does not fit.
    """

    smoke = {"nfe": 2}

    def __init__(
        self,
        model_folder: str | None = None,
        hub_name: str | None = None,
        sampler: str = "f_dpm",
        sampler_options: dict[str, Any] | None = None,
        nfe: int = 8,
        pipeline_class: str | None = None,
        call_options: dict[str, Any] | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        reference: str = "dpmpp_2m",
        reference_options: dict[str, Any] | None = None,
        reference_nfe: int = 0,
    ) -> None:
        super().__init__()
        if (model_folder is None) == (hub_name is None):
            raise ValueError("DiffusionPipelineModule needs either model_folder, a folder on this machine, or hub_name")
        if nfe < 1 or reference_nfe < 0:
            raise ValueError(f"{nfe=} must be positive and {reference_nfe=} not negative")
        self.save_hyperparameters()
        if model_folder is not None and not Path(model_folder).expanduser().is_dir():
            raise FileNotFoundError(f"model_folder: {model_folder} is no folder: download a model first, or give its hub_name")
        kind = getattr(diffusers, pipeline_class or "DiffusionPipeline", None)
        if kind is None:
            raise ValueError(f"pipeline_class={pipeline_class!r} is no class of diffusers {diffusers.__version__}")
        source = {"local_files_only": True} if hub_name is None else {}
        place = hub_name or str(Path(str(model_folder)).expanduser())
        precision = {} if dtype == "float32" else {"torch_dtype": getattr(torch, dtype)}
        self.pipeline = kind.from_pretrained(place, **source, **precision)
        self.pipeline.set_progress_bar_config(disable=True)
        self.scheduler = scheduler_for(sampler, self.pipeline, **(sampler_options or {}))
        self.reference_scheduler = scheduler_for(reference, self.pipeline, **(reference_options or {})) if reference_nfe else None
        self.nfe, self.reference_nfe, self.call_options = nfe, reference_nfe, call_options or {}
        self.calls, self.distance = MeanMetric(), MeanSquaredError(squared=False)

    def setup(self, stage: str) -> None:
        """Bring the networks to the device; as they belong to no checkpoint, Lightning does not."""
        self.pipeline.to(self.trainer.strategy.root_device)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return ``image`` and the ``index`` of each sample."""
        images, calls = self.sample(batch)
        self.calls(calls)
        self.log("test/nfe", self.calls, batch_size=len(images))
        if self.reference_scheduler is not None:
            wanted, _ = self.sample(batch, self.reference_scheduler, self.reference_nfe)
            self.distance(images, wanted)
            self.log("test/rmse_to_reference", self.distance, batch_size=len(images))
        return {"image": images, "index": batch["index"]}

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return ``image`` and the ``index`` of each sample."""
        return {"image": self.sample(batch)[0], "index": batch["index"]}

    def configure_optimizers(self) -> None:
        return None

    def sample(self, batch: dict[str, Any], scheduler: Any = None, nfe: int | None = None) -> tuple[Tensor, int]:
        """Return images, ``[B, C, H, W]``, and the counted calls of the network.

        Args:
            batch: what to make, see the class.
            scheduler: None: the module's own.
            nfe: calls of the network; None: the module's own.

        Raises:
            ValueError: if the batch has no seeds.
        """
        if "seed" not in batch:
            raise ValueError("DiffusionPipelineModule needs a `seed` for each sample of a batch: use PromptDataModule, or add one")
        seeds = batch["seed"].tolist()
        given = {argument: batch[name] for name, argument in ARGUMENTS.items() if name in batch}
        if not given:
            given["batch_size"] = len(seeds)
        self.pipeline.scheduler = self.scheduler if scheduler is None else scheduler
        with self._counted() as calls:
            made = self.pipeline(
                **{**given, **self.call_options},
                generator=[torch.Generator().manual_seed(seed) for seed in seeds],
                num_inference_steps=steps_for_calls(self.pipeline.scheduler, nfe or self.nfe),
                output_type="np",
            )
        return torch.from_numpy(made.images).permute(0, 3, 1, 2).float().to(self.device), len(calls)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[list[None]]:
        """Count the calls of the network in a list that grows by one each."""
        calls: list[None] = []
        network = next(getattr(self.pipeline, name) for name in NETWORKS if hasattr(self.pipeline, name))
        handle = network.register_forward_pre_hook(lambda *_: calls.append(None))
        try:
            yield calls
        finally:
            handle.remove()
