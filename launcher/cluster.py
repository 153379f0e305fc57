"""What this process knows of the others: whether it leads, and how many torchrun or SLURM started."""

import os

import torch.distributed
from lightning.pytorch.utilities.rank_zero import rank_zero_only


def started_processes() -> dict[str, int]:
    """Return the trainer's ``devices`` (a node) and ``num_nodes``, or nothing if this process was started alone."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        return {"devices": per_node, "num_nodes": int(os.environ["WORLD_SIZE"]) // per_node}
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        nodes = int(os.environ["SLURM_NNODES"])
        return {"devices": int(os.environ["SLURM_NTASKS"]) // nodes, "num_nodes": nodes}
    return {}


def is_rank_zero() -> bool:
    """Say whether this process speaks and writes for all."""
    return rank_zero_only.rank == 0  # type: ignore[attr-defined]


def leave_process_group() -> None:
    """End this rank's part of the process group, if there is one: left to the interpreter's exit, its threads may abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
