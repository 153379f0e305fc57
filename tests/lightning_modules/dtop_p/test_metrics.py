import numpy as np
import pytest
import torch

from lightning_modules.dtop_p.metrics import ActiveExperts, ExpertFLOPs, flops_matched


def test_tokens_count_not_batches():
    metric = ActiveExperts(2)
    metric.update(torch.tensor([[[1, 3], [2, 2]], [[4, 4], [4, 4]]]))
    metric.update(torch.tensor([[[5]], [[1]]]))
    assert metric.compute()["mean"].tolist() == pytest.approx([13 / 5, 17 / 5])
    deviations = [float(np.std([1, 3, 2, 2, 5])), float(np.std([4, 4, 4, 4, 1]))]
    assert metric.compute()["std"].tolist() == pytest.approx(deviations)


def test_padding_does_not_count():
    metric = ActiveExperts(1)
    metric.update(torch.tensor([[2, 4, 9]]), torch.tensor([True, True, False]))
    assert metric.compute()["mean"].item() == 3
    assert metric.compute()["std"].item() == 1


def test_tokens_may_count_differently():
    metric = ActiveExperts(1)
    metric.update(torch.tensor([[2, 5]]), torch.tensor([3.0, 1.0]))
    assert metric.compute()["mean"].item() == pytest.approx((3 * 2 + 5) / 4)
    assert metric.compute()["std"].item() == pytest.approx(float(np.std([2, 2, 2, 5])))


def test_operations_of_the_active_experts():
    metric = ExpertFLOPs(2, d_model=8, d_hidden=4)
    metric.update(torch.tensor([[1, 3], [4, 4]]))
    # a multiplication and an addition for each of the 3 * 8 * 4 weights of 2 and of 4 experts
    assert metric.compute().item() == 2 * 3 * 8 * 4 * (2 + 4)
    gelu = ExpertFLOPs(2, 8, 4, "gelu")
    gelu.update(torch.tensor([[1, 3], [4, 4]]))
    assert gelu.compute().item() == 2 * 2 * 8 * 4 * (2 + 4)


@pytest.mark.parametrize(
    ("train", "evaluation", "matched"),
    [(4.03, 4.1, True), (3.97, 3.9, True), (4.05, 4.0, False), (4.0, 4.13, False), (3.9, 4.0, False)],
)
def test_what_may_be_called_matched(train: float, evaluation: float, matched: bool):
    assert flops_matched(4, train, evaluation) is matched
    assert flops_matched(8, 2 * train, 2 * evaluation) is matched
