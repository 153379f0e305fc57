"""Samples on two ranks and in one process."""

import tempfile
from pathlib import Path

import torch
from flow_laws import random_flow
from torch import Tensor, distributed, multiprocessing

SEEDS = torch.arange(30) * 11
CASES = [("uniform", "lc"), ("uniform", "uniformization"), ("mask", "lc"), ("mask", "theta_trap"), ("mask", "first_hitting")]


def samples(seeds: Tensor) -> list[Tensor]:
    found = []
    for kind, name in CASES:
        flow = random_flow(kind, 4, 3)
        x_init = flow.source.init((len(seeds), 3), seeds=seeds)
        found.append(flow.solver(name).sample(x_init, n_steps=4, seeds=seeds).x)
    return found


def share_of_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    joint = []
    for mine in samples(SEEDS[rank::2]):
        parts = [torch.empty_like(mine) for _ in range(2)]
        distributed.all_gather(parts, mine)
        joint.append(torch.stack(parts, dim=1).flatten(0, 1))
    torch.save(joint, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_ranks_draw_what_one_draws():
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(share_of_rank, (folder,), nprocs=2, start_method="fork")
        alone = samples(SEEDS)
        for rank in range(2):
            for joint, right in zip(torch.load(Path(folder) / f"{rank}.pt"), alone, strict=True):
                assert torch.equal(joint, right)
        assert all(len(right.unique(dim=0)) > 5 for right in alone)
