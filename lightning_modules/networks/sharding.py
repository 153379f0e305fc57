"""Parameters sharded over processes, block by block (plain torch)."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor


def shard(network: nn.Module, blocks: Iterable[nn.Module], mesh: DeviceMesh) -> None:
    """Shard each block by itself, so that one block at a time is gathered, and then what is left of the network.

    Buffers stay whole, and keep their type. Called again, it does nothing.

    Args:
        network: what is called in a forward pass.
        blocks: parts of it that hold most of its parameters.
        mesh: processes; with two axes, parameters are sharded over the second and repeated over the first.

    Source: FSDP (arXiv 2304.11277) in its second form, ``torch.distributed.fsdp.fully_shard``.
    """
    if isinstance(network, FSDPModule):
        return
    for block in blocks:
        if not isinstance(block, FSDPModule):
            fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """Return a sharded tensor as a whole, for which all processes must ask; any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
