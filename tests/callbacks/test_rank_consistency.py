from pathlib import Path

import pytest
import torch
from processes import launch
from short_runs import TOY

from callbacks.rank_consistency import RankConsistency, fingerprint


def test_every_bit_and_every_place_counts():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    flipped, swapped = x.clone(), x.clone()
    flipped.view(torch.int32)[3, 4] ^= 1
    swapped[0, 0], swapped[4, 6] = x[4, 6], x[0, 0]
    prints = {int(fingerprint(y)) for y in (x, flipped, swapped)}
    assert len(prints) == 3
    assert int(fingerprint(x.clone())) in prints
    assert fingerprint(torch.zeros(())) == 0


def test_ranks_that_differ_are_found(tmp_path: Path):
    diverge = '--trainer.callbacks+={"class_path": "toy.DivergeAt", "init_args": {"step": 5}}'
    words = [*TOY, "--trainer.devices=2", "--trainer.accelerator=cpu", diverge]
    done = launch([*words, "--consistency.every_n_batches=4"], tmp_path, 2)
    assert all(p.status for p in done), done
    assert "the ranks' weights differ after 8 steps, first in net.3.weight" in done[0].output


def test_one_rank_has_nothing_to_compare(tmp_path: Path):
    (done,) = launch([*TOY, "--consistency.every_n_batches=1"], tmp_path)
    assert done.status == 0, done


def test_impossible_interval():
    with pytest.raises(ValueError, match="every_n_batches >= 1, got 0"):
        RankConsistency(0)
