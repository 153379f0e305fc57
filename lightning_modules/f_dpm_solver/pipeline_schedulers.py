"""Schedulers for a pipeline of diffusers by the names of samplers."""

import inspect
from typing import Any

from lightning_modules.f_dpm_solver.diffusers_extra import diffusers
from lightning_modules.f_dpm_solver.edm_scheduler import FDPMSolverEDMScheduler
from lightning_modules.f_dpm_solver.scheduler import FDPMSolverScheduler

DPMPP: dict[str, Any] = {"algorithm_type": "dpmsolver++"}

TIMED: dict[str, tuple[type, dict[str, Any]]] = {
    "f_dpm": (FDPMSolverScheduler, {}),
    "ddim": (diffusers.DDIMScheduler, {}),
    "euler": (diffusers.EulerDiscreteScheduler, {}),
    "heun": (diffusers.HeunDiscreteScheduler, {}),
    "dpmpp_2m": (diffusers.DPMSolverMultistepScheduler, {**DPMPP, "solver_order": 2}),
    "dpmpp_3m": (diffusers.DPMSolverMultistepScheduler, {**DPMPP, "solver_order": 3}),
    "unipc": (diffusers.UniPCMultistepScheduler, {"solver_type": "bh2"}),
    "deis": (diffusers.DEISMultistepScheduler, {"algorithm_type": "deis", "solver_type": "logrho"}),
}
"""Class and options by name, for networks that are told a time."""

LEVELLED: dict[str, tuple[type, dict[str, Any]]] = {
    "f_dpm": (FDPMSolverEDMScheduler, {}),
    "euler": (diffusers.EDMEulerScheduler, {}),
    "dpmpp_2m": (diffusers.EDMDPMSolverMultistepScheduler, {**DPMPP, "solver_order": 2}),
    "dpmpp_3m": (diffusers.EDMDPMSolverMultistepScheduler, {**DPMPP, "solver_order": 3}),
}
"""The same for networks that are told the noise level, as those of EDM."""

OWN = "own"
"""The scheduler that the model's folder names."""


PLAIN_PIPELINES = ("DDIMPipeline", "DDPMPipeline", "DiTPipeline", "LDMTextToImagePipeline")
"""Pipelines that do not multiply their noise by ``init_noise_sigma``, which Euler and Heun of diffusers need."""


def scheduler_for(name: str, pipeline: Any, **options: Any) -> Any:
    """Return a scheduler with the noise schedule of the pipeline's own.

    Args:
        name: ``own`` or a name in the tables above.
        pipeline: pipeline for which it is.
        options: further options of the new one.

    Raises:
        ValueError: if there is none of that name for this kind of network, or the pipeline cannot work with it.
    """
    present, home = pipeline.scheduler, type(pipeline).__name__
    if name == OWN:
        return type(present).from_config(present.config, **options)
    table = LEVELLED if "sigma_data" in present.config else TIMED
    if name not in table:
        raise ValueError(f"no sampler {name!r} for the networks of {type(present).__name__}: choose own, {', '.join(table)}")
    kind, own = table[name]
    if home == "DDIMPipeline" and name != "ddim":
        raise ValueError(f"a DDIMPipeline samples with DDIM only: give pipeline_class=DDPMPipeline for {name}")
    random = inspect.signature(kind.step).parameters  # type: ignore[attr-defined]
    if (home in PLAIN_PIPELINES and name in ("euler", "heun")) or (home == "DDPMPipeline" and "generator" not in random):
        raise ValueError(f"a {home} cannot sample with {name}: choose own, f_dpm, ddim, dpmpp_2m or dpmpp_3m")
    return kind.from_config(present.config, **{**own, **options})  # type: ignore[attr-defined]


def steps_for_calls(scheduler: Any, calls: int) -> int:
    """Return the steps with which a scheduler spends a number of network calls; one of order 2 saves a call in the last."""
    return (calls + 1) // 2 if scheduler.order == 2 else calls
