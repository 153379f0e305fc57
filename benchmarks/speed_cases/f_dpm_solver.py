"""What a sampler costs beside its network: ours and our scheduler beside the schedulers of diffusers, in runs of ten steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, Timed, measure

DIFFUSERS = "diffusers"
STEPS = 10
SHAPE = (3, 32, 32)
LATENT: dict[str, Any] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
Network = Callable[[Any, Any], Any]


def no_network(batch: int) -> Network:
    """Return a network that costs nothing: it always returns the same tensor."""
    import torch

    output = torch.randn(batch, *SHAPE, generator=torch.Generator().manual_seed(1))
    return lambda x, t: output


def tiny_unet(batch: int) -> Network:
    """Return a U-Net of diffusers with 42 000 parameters."""
    import torch

    from lightning_modules.f_dpm_solver.diffusers_extra import diffusers

    torch.manual_seed(0)
    down, up = ("DownBlock2D",) * 2, ("UpBlock2D",) * 2
    channels = (8, 16)
    unet = diffusers.UNet2DModel(
        32, 3, 3, block_out_channels=channels, down_block_types=down, up_block_types=up, layers_per_block=1, norm_num_groups=4
    ).eval()
    return lambda x, t: unet(x, t, return_dict=False)[0]


def scheduler_run(name: str, network: Network, batch: int) -> Timed:
    """Return what a pipeline does with a scheduler: set the timesteps, call the network, take steps."""
    import diffusers
    import torch

    from lightning_modules import FDPMSolverScheduler

    build: dict[str, Callable[[], Any]] = {
        "our scheduler": partial(FDPMSolverScheduler, **LATENT),
        "DDIM": partial(diffusers.DDIMScheduler, **LATENT, clip_sample=False, timestep_spacing="linspace"),
        "DPM++2M": partial(diffusers.DPMSolverMultistepScheduler, **LATENT, algorithm_type="dpmsolver++", solver_order=2),
    }
    scheduler = build[name]()
    noise = torch.randn(batch, *SHAPE, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def run() -> None:
        scheduler.set_timesteps(STEPS)
        x = noise * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            x = scheduler.step(network(x, t), t, x, return_dict=False)[0]

    return run


def sampler_run(network: Network, batch: int) -> Timed:
    """Return a run of our sampler: call the network, take steps; its grid, which it is given, is made once."""
    import torch

    from lightning_modules.f_dpm_solver.denoiser import Denoiser
    from lightning_modules.f_dpm_solver.grids import make_grid
    from lightning_modules.f_dpm_solver.samplers import get_sampler
    from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule

    schedule = DiscreteVPSchedule.scaled_linear(beta_start=LATENT["beta_start"], beta_end=LATENT["beta_end"])
    denoiser, sampler = Denoiser(network, "epsilon", schedule), get_sampler("f_dpm")
    noise, grid = torch.randn(batch, *SHAPE, generator=torch.Generator().manual_seed(0)), make_grid(schedule, STEPS, "discrete")

    @torch.no_grad()
    def run() -> None:
        sampler.sample(denoiser, noise, grid)

    return run


def beside(ours: str, peer: str, make_network: Callable[[int], Network], batch: int, pairs: int) -> PairedTimes:
    network = make_network(batch)
    run = sampler_run(network, batch) if ours != "our scheduler" else scheduler_run(ours, network, batch)
    return measure(run, scheduler_run(peer, network, batch), pairs)


NETWORKS: dict[str, Callable[[int], Network]] = {"no network": no_network, "tiny U-Net": tiny_unet}
CASES = tuple(
    Case(
        f"F-DPM, {ours}, {STEPS} steps, {network}, {batch} x 3 x 32 x 32",
        f"diffusers' {peer}",
        installed_version(DIFFUSERS),
        partial(beside, ours, peer, make_network, batch),
        15 if make_network is no_network else 7,
        needs_package=DIFFUSERS,
    )
    for network, make_network in NETWORKS.items()
    for batch in (1, 64)
    for ours in ("our sampler on a ready grid", "our scheduler")
    for peer in ("DDIM", "DPM++2M")
)
