"""The regulariser on two ranks and on their joint batch in one process."""

import tempfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from lightning_modules.r2r2.redundancy import RedundancyReduction, SelfPredictiveLoss

LOSSES = {
    "spl": lambda z: SelfPredictiveLoss()(z, 0.5 * z),
    "local": lambda z: RedundancyReduction(1.0, 1.0, 2.0)(z)[0],
    "sync": lambda z: RedundancyReduction(1.0, 1.0, 2.0, sync_batch=True)(z)[0],
}


def network() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 4, dtype=torch.float64)


def batch() -> Tensor:
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = {}
    for name, loss in LOSSES.items():
        net = DistributedDataParallel(network())
        loss(net(batch()[rank::2])).backward()
        found[name] = net.module.weight.grad
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks() -> list[dict[str, Tensor]]:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(gradients, (folder,), nprocs=2)
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(2)]


def joint(name: str) -> Tensor:
    net = network()
    LOSSES[name](net(batch())).backward()
    assert net.weight.grad is not None
    return net.weight.grad


@pytest.mark.parametrize("name", ["spl", "sync"])
def test_two_ranks_have_the_gradient_of_the_joint_batch(two_ranks: list[dict[str, Tensor]], name: str):
    for found in two_ranks:
        assert torch.allclose(found[name], joint(name), atol=1e-6)


def test_without_gathering_the_regulariser_sees_each_rank_alone(two_ranks: list[dict[str, Tensor]]):
    assert not torch.allclose(two_ranks[0]["local"], joint("local"), atol=1e-3)
    assert torch.equal(two_ranks[0]["local"], two_ranks[1]["local"])


def test_one_process_needs_no_other():
    assert torch.equal(joint("sync"), joint("local"))
