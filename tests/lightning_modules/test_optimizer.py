import math
from typing import Any

import pytest
import torch
from torch import nn

from lightning_modules.optimizer import adamw


def test_warmup_and_what_is_trained():
    fixed, trained = nn.Parameter(torch.zeros(2), requires_grad=False), nn.Parameter(torch.zeros(3))
    configured = adamw([fixed, trained], lr=0.5, weight_decay=0.01, warmup_steps=4)
    optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]
    assert schedule["interval"] == "step"
    assert optimizer.param_groups[0]["params"] == [trained]
    assert optimizer.param_groups[0]["weight_decay"] == 0.01
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule["scheduler"].step()
    assert rates == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5, 0.5])
    assert adamw([trained], 0.5, 0.0, warmup_steps=0)["optimizer"].param_groups[0]["lr"] == 0.5


def shares(count: int, **options: Any) -> list[float]:
    schedule: Any = adamw([nn.Parameter(torch.ones(1))], 0.1, 0.0, **options)["lr_scheduler"]
    return [schedule["scheduler"].lr_lambdas[0](t) for t in range(count)]


def test_without_an_end_the_rate_is_constant():
    assert shares(1000, min_lr_ratio=0.1) == [1] * 1000


@pytest.mark.parametrize("end", [{"max_steps": 10}, {"max_epochs": 10}])
def test_it_falls_along_half_a_cosine_and_stays(end: dict[str, int]):
    found = shares(30, min_lr_ratio=0.1, **end)
    assert found[:10] == pytest.approx([0.1 + 0.9 * (1 + math.cos(math.pi * t / 10)) / 2 for t in range(10)])
    assert found[10:] == pytest.approx([0.1] * 20)


def test_the_cosine_begins_after_the_warm_up():
    found = shares(12, warmup_steps=4, min_lr_ratio=0.2, max_steps=12)
    assert found[:5] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert found[8] == pytest.approx(0.6)
    with pytest.raises(ValueError, match="max_steps"):
        shares(1, warmup_steps=4, min_lr_ratio=0.2, max_epochs=3)


def test_the_warm_up_may_be_a_share_of_the_steps():
    assert shares(12, warmup_share=0.25, min_lr_ratio=0.2, max_steps=12) == shares(
        12, warmup_steps=3, min_lr_ratio=0.2, max_steps=12
    )
    assert shares(3, warmup_share=0.25, max_epochs=3) == [1, 1, 1]


def test_vectors_may_be_spared_from_decay():
    matrix, vector, fixed = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), False)
    optimizer = adamw([matrix, vector, fixed], 0.1, 0.5, decay_vectors=False)["optimizer"]
    assert isinstance(optimizer, torch.optim.Optimizer)
    (decayed, spared) = optimizer.param_groups
    assert (decayed["params"], decayed["weight_decay"]) == ([matrix], 0.5)
    assert (spared["params"], spared["weight_decay"]) == ([vector], 0.0)
