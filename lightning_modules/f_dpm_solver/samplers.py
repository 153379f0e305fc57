"""All samplers by name."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from lightning_modules.f_dpm_solver.ddim import DDIM
from lightning_modules.f_dpm_solver.f_dpm import FDPM
from lightning_modules.f_dpm_solver.forward_ideal import ForwardIdeal
from lightning_modules.f_dpm_solver.heun import Heun
from lightning_modules.f_dpm_solver.multistep import DPMSolverPPMultistep, EpsMultistep
from lightning_modules.f_dpm_solver.sampler import Sampler, SamplerOutput
from lightning_modules.f_dpm_solver.single_step import DPMSolverPP1S, DPMSolverPP2S
from lightning_modules.f_dpm_solver.unipc import UniPCCode

__all__ = ["SAMPLERS", "Sampler", "SamplerOutput", "get_sampler", "steps_for"]


def _from_diffusers(class_name: str, **options: Any) -> Sampler:
    return getattr(importlib.import_module("lightning_modules.f_dpm_solver.diffusers_samplers"), class_name)(**options)


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "ddim": DDIM,
    "f_dpm": FDPM,
    "eps_multistep": EpsMultistep,
    "eps_ms2": partial(EpsMultistep, order=2),
    "eps_ms3": partial(EpsMultistep, order=3),
    "dpmpp_1s": DPMSolverPP1S,
    "dpmpp_2s": DPMSolverPP2S,
    "dpmpp_2m": partial(DPMSolverPPMultistep, order=2),
    "dpmpp_3m": partial(DPMSolverPPMultistep, order=3),
    "unipc_code": UniPCCode,
    "heun": Heun,
    "forward_ideal": ForwardIdeal,
    "unipc": partial(_from_diffusers, "UniPCSampler"),
    "deis": partial(_from_diffusers, "DEISSampler"),
    "ipndm": partial(_from_diffusers, "IPNDMSampler"),
}
"""Name of a sampler → what builds it from its options. Those of diffusers import it when they are built."""


def get_sampler(name: str, **options: Any) -> Sampler:
    """Return a sampler by its name in :data:`SAMPLERS`, with the options of its class.

    Raises:
        ValueError: if there is no such sampler.
    """
    if name not in SAMPLERS:
        raise ValueError(f"unknown sampler {name!r}: choose one of {', '.join(sorted(SAMPLERS))}")
    return SAMPLERS[name](**options)


def steps_for(name: str, nfe: int, **options: Any) -> int:
    """Return how many steps of a sampler spend a number of network calls, at most.

    Raises:
        ValueError: if there is no such sampler, or the calls are too few for one step.
    """
    return get_sampler(name, **options).steps_for(nfe)
