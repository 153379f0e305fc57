"""Find ranks whose weights have silently drifted apart."""

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor


class RankConsistency(Callback):
    """Compare the parameters of all ranks bit by bit, now and then and at the end of training.

    Under DDP they are equal at every moment; they part when a loss was computed past DDP's wrapper, when ranks make different
    numbers of steps, or when something that steers training was drawn differently. Nothing else would tell. Without DDP the
    callback does nothing.

    Args:
        every_n_batches: training batches between two comparisons.

    Raises:
        ValueError: if the number is not positive.
        RuntimeError: if the ranks differ; it names the first parameter that does.
    """

    def __init__(self, every_n_batches: int = 1_000) -> None:
        if every_n_batches < 1:
            raise ValueError(f"RankConsistency needs every_n_batches >= 1, got {every_n_batches}")
        self.every_n_batches = every_n_batches
        self._batches = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        self._batches += 1
        if self._batches % self.every_n_batches == 0:
            self._compare(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._compare(trainer, pl_module)

    def _compare(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size == 1 or not isinstance(trainer.strategy, DDPStrategy):
            return
        names = [name for name, _ in pl_module.named_parameters()]
        own_P = torch.stack([fingerprint(parameter) for parameter in pl_module.parameters()])
        lowest_P, highest_P = own_P.clone(), own_P.clone()
        dist.all_reduce(lowest_P, op=dist.ReduceOp.MIN)
        dist.all_reduce(highest_P, op=dist.ReduceOp.MAX)
        differing = (lowest_P != highest_P).nonzero()
        if len(differing):
            raise RuntimeError(
                f"the ranks' weights differ after {trainer.global_step} steps, first in {names[int(differing[0])]}: compute every "
                "loss in training_step, on all ranks equally often, and draw alike on all ranks what steers training"
            )


def fingerprint(tensor: Tensor) -> Tensor:
    """Return an int64 that depends on the place and on every bit of every element; equal tensors have equal ones."""
    bits = tensor.detach().contiguous().flatten().view(torch.uint8).to(torch.int64)
    place = torch.arange(1, len(bits) + 1, device=bits.device)
    return (bits * (place * 2654435761)).sum()
