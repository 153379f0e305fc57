from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.test_outcomes import TestOutcomes


def test_outcomes_of_all_test_sets_are_written_by_sample(tmp_path: Path):
    datamodule = SimpleNamespace(suite_names=lambda: ["harder"])
    trainer: Any = SimpleNamespace(default_root_dir=tmp_path, world_size=1, is_global_zero=True, datamodule=datamodule)
    callback, module = TestOutcomes(), Any
    callback.on_test_start(trainer, module)
    outcomes = {"right": torch.tensor([True, False]), "named": torch.tensor([3, 0])}
    callback.on_test_batch_end(trainer, module, {"outcomes": outcomes}, {"index": torch.tensor([4, 2])}, 0, 1)
    callback.on_test_batch_end(trainer, module, {"outcomes": {"right": torch.ones(1)}}, {"index": torch.tensor([0])}, 0, 0)
    callback.on_test_batch_end(trainer, module, None, {}, 0, 0)
    callback.on_test_end(trainer, module)
    assert (tmp_path / "outcomes.csv").read_text().split() == [
        *("suite,index,outcome,value", "harder,2,named,0", "harder,2,right,0", "harder,4,named,3", "harder,4,right,1"),
        "test,0,right,1",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["outcomes.csv"]


def test_outcomes_of_nobody_knows_which_sample():
    callback: Any = TestOutcomes()
    callback._names, callback._rows = ["test"], []
    with pytest.raises(ValueError, match="index"):
        callback.on_test_batch_end(None, None, {"outcomes": {"right": torch.ones(1)}}, {}, 0)
