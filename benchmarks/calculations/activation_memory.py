"""How much memory a training step of Sheaf-ADMM needs, against the number of unrolled iterations."""

from collections.abc import Mapping
from typing import Any

from benchmarks.allocated_memory import allocated_peak

SIDE, BATCH = 19, 8
ITERATIONS = (5, 10, 20, 40)
METRIC = "peak_mib"
CHECKPOINT_EVERY = {"keep": 0, "every_5": 5, "every_1": 1}


def peak_memory(variant: str, seed: int) -> Mapping[str, float]:
    """Return the peak memory in MiB that one step allocates beyond parameters and data, by number of iterations.

    A step is the forward and backward pass of the paper's maze model on random boards of 19x19 pixels.

    Args:
        variant: a key of ``CHECKPOINT_EVERY``.
        seed: seed of weights and boards; memory does not depend on it.
    """
    import torch

    from lightning_modules.sheaf_admm.maze import MazeTask
    from lightning_modules.sheaf_admm.module import SheafADMMModule

    torch.manual_seed(seed)
    options: dict[str, Any] = {"gamma": 5.0, "loss_window": 4, "lora_rank": 4, "l1": 0.01, "upper": 1.0, "learned_box": True}
    module = SheafADMMModule(MazeTask(), **options, checkpoint_every=CHECKPOINT_EVERY[variant])
    maze, solution = torch.randint(1, 5, (2, BATCH, SIDE, SIDE))
    batch = {"maze": maze, "solution": solution}

    def step(horizon: int) -> None:
        states = module.iterates(batch, range(horizon - 3, horizon + 1))
        module.task.loss(module.task.decode(torch.stack(list(states.values())), module.task.views(batch)), batch).backward()
        module.zero_grad()

    step(ITERATIONS[0])
    peaks = {k: allocated_peak(lambda k=k: step(k)) / 2**20 for k in ITERATIONS}  # type: ignore[misc]
    return {METRIC: peaks[ITERATIONS[-1]], **{f"{METRIC}_at_{k}": peak for k, peak in peaks.items()}}
