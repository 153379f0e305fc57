"""Sharded parameters on two processes; the CPU stands in for GPUs."""

from pathlib import Path

import pytest
import torch
from parity import trained
from short_runs import CONFIGS, SHORT_RUNS
from torch import nn

from lightning_modules.networks.sharding import whole

SHARDED = ["--config", CONFIGS / "overlays" / "fsdp2.yaml"]


def test_sharded_ranks_equal_one_process(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, metrics_of_one = trained(tmp_path / "one", SHORT_RUNS["dtop_p"], 1)
    two, metrics_of_two = trained(tmp_path / "two", [*SHORT_RUNS["dtop_p"], *SHARDED], 2)
    assert one.keys() == two.keys(), "the file holds whole parameters under their own names"
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=0, msg=name)
    assert two["controller.p"].dtype == torch.float64
    assert two["controller.num_updates"] == 9
    assert metrics_of_two == pytest.approx(metrics_of_one, rel=1e-5, abs=1e-5)


def test_a_tensor_that_is_not_sharded_is_whole():
    scale = nn.Parameter(torch.ones(1))
    assert whole(scale) is scale
