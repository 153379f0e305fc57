"""How many processes torchrun or SLURM started, so that nobody types it twice."""

import os


def started_processes() -> dict[str, int]:
    """Return the trainer's ``devices`` (a node) and ``num_nodes``, or nothing if this process was started alone."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        return {"devices": per_node, "num_nodes": int(os.environ["WORLD_SIZE"]) // per_node}
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        nodes = int(os.environ["SLURM_NNODES"])
        return {"devices": int(os.environ["SLURM_NTASKS"]) // nodes, "num_nodes": nodes}
    return {}
