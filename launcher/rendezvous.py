"""One decision of rank 0, known to all ranks before any process group exists."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from launcher.errors import UserError

TIMEOUT = timedelta(minutes=10)


def decide_on_rank_zero(decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call ``decide`` on rank 0 and return its JSON-like answer on every rank.

    Processes that Lightning starts inherit the answer through the environment; those of torchrun read it from the store of
    torchrun's agent; those of ``srun`` from a store that rank 0 opens for the moment.
    """
    inherited = json.loads(os.environ.get("LEYDEN_DECISION", "{}"))
    if inherited and inherited["by"] != os.getpid():
        return inherited
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _through_store(decide, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank=int(os.environ["RANK"]))
    if int(os.environ.get("SLURM_NTASKS", "1")) > 1 and "SLURM_PROCID" in os.environ:
        from lightning.fabric.plugins.environments import SLURMEnvironment

        if SLURMEnvironment.detect():
            try:
                environment = SLURMEnvironment()
            except RuntimeError as error:  # --ntasks without --ntasks-per-node
                raise UserError(str(error)) from error
            address, port = environment.main_address, environment.main_port + 1  # main_port is for the process group
            return _through_store(decide, address, port, environment.global_rank(), environment.world_size())
    decision = decide()
    os.environ["LEYDEN_DECISION"] = json.dumps({**decision, "by": os.getpid()})
    return decision


def _through_store(decide: Callable[[], dict[str, Any]], host: str, port: int, rank: int, own_world: int = 0) -> dict[str, Any]:
    """Exchange over a TCP store; with ``own_world`` ranks rank 0 opens it itself and waits until all have read."""
    from torch.distributed import TCPStore

    key = f"leyden/decision/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    store = TCPStore(host, port, is_master=bool(own_world) and rank == 0, timeout=TIMEOUT, wait_for_workers=False)
    if rank == 0:
        try:
            answer = {"decision": decide()}
        except Exception as error:
            store.set(key, json.dumps({"error": str(error)}))
            raise
        store.set(key, json.dumps(answer))
    else:
        answer = json.loads(store.get(key))
    if own_world:
        store.set(f"{key}/read/{rank}", "")
        if rank == 0:
            store.wait([f"{key}/read/{other}" for other in range(own_world)], TIMEOUT)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer["decision"]
