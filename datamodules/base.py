"""The base of all data modules: whole-batch loaders whose order is a pure function of (seed, epoch, rank).

Two properties follow. A run that was killed continues with the very batch it would have seen next, and the union of what all
ranks see at a step is the batch that one process would have seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler


@dataclass(frozen=True)
class BatchKey:
    """What a dataset needs to build one batch on one rank.

    Attributes:
        epoch: epoch number, from 0.
        batch: number of the batch inside the epoch, from 0.
        indices: sample indices of the *global* batch, shape ``[global batch]``.
        rows: the rows of the global batch that belong to this rank.
    """

    epoch: int
    batch: int
    indices: np.ndarray
    rows: slice

    @property
    def local_indices(self) -> np.ndarray:
        """Sample indices of this rank, shape ``[local batch]``."""
        return self.indices[self.rows]

    def generator(self, seed: int) -> np.random.Generator:
        """Random numbers that belong to this batch alone.

        Draw for the whole global batch and cut with ``rows``: then a sample is augmented alike on any number of ranks and after
        any restart.
        """
        return np.random.default_rng((seed, self.epoch, self.batch))

    def seeds(self, seed: int | None) -> np.ndarray:
        """Return a seed for each sample of this rank, int64 ``[local batch]``: new ones in each epoch, or None: their indices."""
        if seed is None:
            return self.local_indices
        return self.generator(seed).integers(2**63, size=len(self.indices))[self.rows]


class BatchDataset(Protocol):
    """A dataset that is read a whole batch at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]: ...


class ShardedBatchSampler(Sampler[BatchKey]):
    """Cut ``size`` samples into global batches and hand this rank its share of each.

    Rank ``r`` of ``R`` takes the rows ``r, r + R, …`` of every global batch. Without ``drop_last`` the samples are spread evenly
    over about ``size / batch_size`` batches: all ranks see equally many batches and no sample twice, so sums over ranks are exact.

    Args:
        size: number of samples.
        batch_size: *global* batch size, a multiple of ``world_size``.
        seed: seed of the order.
        shuffle: draw a new order each epoch.
        drop_last: leave out the samples of an incomplete last batch.
        rank: rank of this process.
        world_size: number of processes.

    Raises:
        ValueError: if the batch cannot be shared equally, or no batch is left.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = False,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1 or batch_size % world_size:
            raise ValueError(
                f"batch_size={batch_size} is the global batch and cannot be shared by {world_size} processes: use a multiple of it"
            )
        if size < (batch_size if drop_last else world_size):
            raise ValueError(f"{size} samples give no batch of {batch_size} on {world_size} processes: use a smaller batch_size")
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.shuffle, self.drop_last = shuffle, drop_last
        self.world_size = world_size
        self.rows = slice(rank, None, world_size)
        self.epoch = 0
        self.first_batch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order is drawn next; Lightning calls it."""
        self.epoch = epoch

    def skip_to(self, batch: int) -> None:
        """Let the next pass, and only that one, begin at ``batch``."""
        self.first_batch = batch

    def __len__(self) -> int:
        if self.drop_last:
            return self.size // self.batch_size
        return min(-(-self.size // self.batch_size), self.size // self.world_size)  # every rank has a row in every batch

    def __iter__(self) -> Iterator[BatchKey]:
        first, self.first_batch = self.first_batch, 0
        order = np.arange(self.size)
        if self.shuffle:
            order = np.random.default_rng((self.seed, self.epoch)).permutation(self.size)
        if self.drop_last:
            order = order[: len(self) * self.batch_size]
        for batch, indices in enumerate(np.array_split(order, len(self))[first:], start=first):
            yield BatchKey(self.epoch, batch, indices, self.rows)


class OrderedBatchSampler(ShardedBatchSampler, SequentialSampler):  # type: ignore[misc]
    """The sampler without shuffling. By its base Lightning knows that ``overfit_batches`` need not put another in its place."""


class ExactDataLoader(DataLoader):
    """A loader of whole batches that knows how many it has handed out, and can start there again.

    Lightning stores ``state_dict`` in every checkpoint. Batches that workers have fetched ahead do not count.
    """

    sampler: ShardedBatchSampler

    def __init__(self, dataset: BatchDataset, *, sampler: ShardedBatchSampler, **kwargs: Any) -> None:
        own_generator = torch.Generator().manual_seed(sampler.seed)  # else every pass would draw from the global one
        settings = {"generator": own_generator, **kwargs, "batch_size": None}
        super().__init__(dataset, sampler=sampler, **settings)  # type: ignore[arg-type]
        self._handed_out = 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:  # type: ignore[override]
        self._handed_out = self.sampler.first_batch
        for batch in super().__iter__():
            self._handed_out += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of batches handed out in it."""
        return {"epoch": self.sampler.epoch, "batch": self._handed_out}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin where ``state`` was taken; a finished epoch begins anew."""
        self.sampler.set_epoch(state["epoch"])
        self.sampler.skip_to(state["batch"] % len(self.sampler))


class LeydenDataModule(LightningDataModule):
    """Data module whose subclasses fill ``train_set``, ``val_set`` and ``test_set`` (None: there is none) in ``setup``.

    A subclass may have further test sets: it names them in ``suite_names`` and fills ``test_suites`` beside ``test_set``, in
    that order. A test then reads one loader each, the ordinary test set first.

    Args:
        batch_size: *global* batch size: with R processes each holds ``batch_size / R`` samples of a step.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank; 0 loads in the training process.
        seed: seed of the data order and of augmentation.
    """

    train_set: BatchDataset
    val_set: BatchDataset
    test_set: BatchDataset | None
    test_suites: dict[str, BatchDataset]

    def __init__(self, batch_size: int, eval_batch_size: int | None = None, num_workers: int = 0, seed: int = 0) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.num_workers = num_workers
        self.seed = seed

    def trainer_defaults(self) -> dict[str, Any]:
        """Trainer settings that this data needs: the samplers here share the data out already."""
        return {"use_distributed_sampler": False}

    def model_arguments(self) -> dict[str, Any]:
        """Values that the data dictate to the model: each fills the model parameter of that name that is left at None."""
        return {"test_suites": names} if (names := self.suite_names()) else {}

    def suite_names(self) -> list[str]:
        """Names of the further test sets, in the order of their loaders."""
        return []

    def train_dataloader(self) -> ExactDataLoader:
        return self._loader(self.train_set, self.batch_size, training=True)

    def val_dataloader(self) -> ExactDataLoader:
        return self._loader(self.val_set, self.eval_batch_size)

    def test_dataloader(self) -> ExactDataLoader | list[ExactDataLoader]:
        suites = [self._loader(self.test_suites[name], self.eval_batch_size) for name in self.suite_names()]
        return [self.predict_dataloader(), *suites] if suites else self.predict_dataloader()

    def predict_dataloader(self) -> ExactDataLoader:
        if self.test_set is None:
            raise ValueError(f"{type(self).__name__} has no test set")
        return self._loader(self.test_set, self.eval_batch_size)

    def _loader(self, dataset: BatchDataset, batch_size: int, training: bool = False) -> ExactDataLoader:
        overfit = bool(self.trainer and self.trainer.overfit_batches)  # type: ignore[attr-defined]
        shuffle = training and not overfit
        sampler = (ShardedBatchSampler if shuffle else OrderedBatchSampler)(
            len(dataset),
            batch_size,
            seed=self.seed,
            shuffle=shuffle,
            drop_last=training,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
        )
        return ExactDataLoader(
            dataset,
            sampler=sampler,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=bool(self.trainer and self.trainer.strategy.root_device.type == "cuda"),
        )
