import numpy as np
import pytest
import torch
from torch import Tensor

from datamodules.base import BatchKey, ExactDataLoader, LeydenDataModule, ShardedBatchSampler


class Squares:
    """Squares with noise that depends on the batch alone."""

    def __init__(self, size: int, seed: int = 3) -> None:
        self.size, self.seed = size, seed

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        noise = key.generator(self.seed).random(len(key.indices))[key.rows]
        return {"index": torch.from_numpy(key.local_indices), "value": torch.from_numpy(key.local_indices**2 + noise)}


def sampler(size: int, batch_size: int, rank: int = 0, world_size: int = 1, **options) -> ShardedBatchSampler:
    return ShardedBatchSampler(size, batch_size, rank=rank, world_size=world_size, **options)


@pytest.mark.parametrize(
    ("size", "batch_size", "world_size"), [(10, 4, 1), (10, 4, 2), (23, 8, 4), (8, 8, 8), (33, 8, 2), (9, 8, 8)]
)
def test_evaluation_sees_every_sample_once(size: int, batch_size: int, world_size: int):
    ranks = [list(sampler(size, batch_size, rank, world_size)) for rank in range(world_size)]
    assert len({len(keys) for keys in ranks}) == 1
    seen = np.concatenate([key.local_indices for keys in ranks for key in keys])
    assert sorted(seen) == list(range(size))
    assert all(len(key.local_indices) > 0 for keys in ranks for key in keys)
    assert max(len(key.indices) for key in ranks[0]) <= batch_size + world_size
    assert max(len(key.indices) for key in ranks[0]) - min(len(key.indices) for key in ranks[0]) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_training_batches_are_full_and_shared_equally(world_size: int):
    ranks = [list(sampler(22, 8, rank, world_size, shuffle=True, drop_last=True)) for rank in range(world_size)]
    for batch in range(2):
        keys = [keys[batch] for keys in ranks]
        assert {len(key.local_indices) for key in keys} == {8 // world_size}
        assert sorted(np.concatenate([key.local_indices for key in keys])) == sorted(keys[0].indices)
    seen = np.concatenate([key.indices for key in ranks[0]])
    assert len(set(seen)) == 16
    assert len(ranks[0]) == len(sampler(22, 8, drop_last=True)) == 2


def test_the_global_batch_does_not_depend_on_the_number_of_ranks():
    alone = list(sampler(32, 8, shuffle=True, seed=5))
    shared = list(sampler(32, 8, 1, 2, shuffle=True, seed=5))
    assert all((one.indices == other.indices).all() for one, other in zip(alone, shared, strict=True))


def test_order_is_a_function_of_seed_and_epoch():
    def order(seed: int, epoch: int) -> list[int]:
        keys = sampler(50, 10, shuffle=True, seed=seed)
        keys.set_epoch(epoch)
        return np.concatenate([key.indices for key in keys]).tolist()

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)
    assert sorted(order(1, 2)) == list(range(50))


def test_skip_to_holds_for_one_pass():
    keys = sampler(40, 10, shuffle=True)
    whole = list(keys)
    keys.skip_to(3)
    (last,) = keys
    assert last.batch == 3
    assert (last.indices == whole[3].indices).all()
    assert len(list(keys)) == 4


def test_noise_belongs_to_seed_epoch_and_batch():
    draws = {
        BatchKey(epoch, batch, np.arange(3), slice(None)).generator(seed).random()
        for seed in (0, 1)
        for epoch in (0, 1)
        for batch in (0, 1)
    }
    assert len(draws) == 8


def test_ranks_together_see_the_batch_of_one_process():
    key = BatchKey(1, 2, np.arange(8), slice(None))
    whole = Squares(8)[key]["value"]
    for rank in range(2):
        part = Squares(8)[BatchKey(1, 2, np.arange(8), slice(rank, None, 2))]["value"]
        assert torch.equal(part, whole[rank::2])


@pytest.mark.parametrize(
    ("size", "batch_size", "world_size", "drop_last", "message"),
    [
        (10, 3, 2, False, "cannot be shared by 2"),
        (10, 0, 1, False, "batch_size=0"),
        (3, 4, 1, True, "no batch"),
        (1, 2, 2, False, "no batch"),
    ],
)
def test_impossible_shares_are_refused(size: int, batch_size: int, world_size: int, drop_last: bool, message: str):
    with pytest.raises(ValueError, match=message):
        sampler(size, batch_size, 0, world_size, drop_last=drop_last)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_continues_where_its_state_was_taken(num_workers: int):
    def loader() -> ExactDataLoader:
        return ExactDataLoader(Squares(40), sampler=sampler(40, 8, shuffle=True), num_workers=num_workers)

    first = loader()
    first.sampler.set_epoch(4)
    iterator = iter(first)
    for _ in range(2):
        next(iterator)
    state = first.state_dict()
    rest = [batch["value"] for batch in iterator]
    assert state == {"epoch": 4, "batch": 2}
    assert len(rest) == 3

    second = loader()
    second.load_state_dict(state)
    iterator = iter(second)
    again = [next(iterator)["value"]]
    assert second.state_dict() == {"epoch": 4, "batch": 3}
    again += [batch["value"] for batch in iterator]
    assert all(torch.equal(one, other) for one, other in zip(rest, again, strict=True))
    assert len(list(second)) == len(second) == 5


def test_a_finished_epoch_begins_anew():
    loader = ExactDataLoader(Squares(16), sampler=sampler(16, 8))
    list(loader)
    assert loader.state_dict()["batch"] == 2
    loader.load_state_dict(loader.state_dict())
    assert len(list(loader)) == 2


def test_loaders_of_a_data_module():
    data = LeydenDataModule(batch_size=8, eval_batch_size=4, seed=1)
    data.train_set, data.val_set = Squares(20), Squares(6)
    assert [len(batch["index"]) for batch in data.train_dataloader()] == [8, 8]
    assert [batch["index"].tolist() for batch in data.val_dataloader()] == [[0, 1, 2], [3, 4, 5]]
    assert data.trainer_defaults() == {"use_distributed_sampler": False}
    assert data.model_arguments() == {}
    data.test_set = None
    with pytest.raises(ValueError, match="no test set"):
        data.test_dataloader()
