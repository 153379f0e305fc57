import math

import pytest
import torch
from torch import distributed

from lightning_modules.dtop_p.losses import assignment_share, entropy_loss, load_balance_loss, mean_over_valid, router_z_loss
from lightning_modules.dtop_p.selection import top_k_mask, top_p_mask


def balance(probs, mask, valid=None):
    return load_balance_loss(probs, assignment_share(mask), valid).item()


def random_logits(tokens: int = 64, experts: int = 8) -> torch.Tensor:
    return 2 * torch.randn(tokens, experts, generator=torch.Generator().manual_seed(0))


def test_balance_at_its_ends():
    even = torch.eye(4).repeat(3, 1)
    assert balance(even, even.bool()) == pytest.approx(1)
    assert balance(torch.full((6, 4), 0.25), torch.ones(6, 4, dtype=torch.bool)) == pytest.approx(1)
    one = torch.eye(4)[:1].repeat(5, 1)
    assert balance(one, one.bool()) == pytest.approx(4)


def test_share_by_hand():
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    torch.testing.assert_close(assignment_share(mask), torch.tensor([3.0, 2.0, 1.0]) / 6)
    assert not assignment_share(torch.zeros(2, 3, dtype=torch.bool)).any()


def switch_loss(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The balance loss of OLMoE and Mixtral, as in transformers' ``load_balancing_loss_func`` without attention mask."""
    routing_weights = torch.nn.functional.softmax(logits, dim=-1)
    _, selected_experts = torch.topk(routing_weights, k, dim=-1)
    expert_mask = torch.nn.functional.one_hot(selected_experts, logits.shape[-1])
    tokens_per_expert = torch.mean(expert_mask.float(), dim=0)
    router_prob_per_expert = torch.mean(routing_weights, dim=0)
    return torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0)) * logits.shape[-1]


@pytest.mark.parametrize("k", [1, 3])
def test_top_k_balance_is_that_of_olmoe(k):
    logits = random_logits()
    probs = logits.softmax(-1)
    assert k * balance(probs, top_k_mask(probs, k)) == pytest.approx(switch_loss(logits, k).item(), rel=1e-5)


def test_top_k_balance_is_that_of_transformers():
    olmoe = pytest.importorskip("transformers.models.olmoe.modeling_olmoe")
    logits = random_logits()
    probs = logits.softmax(-1)
    expected = olmoe.load_balancing_loss_func((logits,), num_experts=8, top_k=2)
    assert 2 * balance(probs, top_k_mask(probs, 2)) == pytest.approx(expected.item(), rel=1e-5)


def test_entropy_and_z_of_equal_logits():
    assert entropy_loss(torch.full((5, 8), 1 / 8)).item() == pytest.approx(math.log(8), rel=1e-6)
    assert entropy_loss(torch.eye(8)).item() == pytest.approx(0, abs=1e-6)
    assert router_z_loss(torch.zeros(5, 8)).item() == pytest.approx(math.log(8) ** 2, rel=1e-6)
    assert router_z_loss(torch.full((5, 8), 3.0)).item() == pytest.approx((3 + math.log(8)) ** 2, rel=1e-6)


def test_gradient_flows_through_the_mean_probability_alone():
    probs = random_logits().softmax(-1).requires_grad_()
    share = assignment_share(top_p_mask(probs, 0.7))
    (gradient,) = torch.autograd.grad(load_balance_loss(probs, share), probs)
    torch.testing.assert_close(gradient, (8 * share / 64).expand(64, 8))


def test_padding_does_not_count():
    logits, valid = random_logits(), torch.arange(64) % 3 > 0
    probs = logits.softmax(-1)
    mask = top_p_mask(probs, 0.7) & valid.unsqueeze(-1)
    assert balance(probs, mask, valid) == pytest.approx(balance(probs[valid], mask[valid]), rel=1e-5)
    assert entropy_loss(probs, valid).item() == pytest.approx(entropy_loss(probs[valid]).item(), rel=1e-5)
    assert router_z_loss(logits, valid).item() == pytest.approx(router_z_loss(logits[valid]).item(), rel=1e-5)
    nothing = torch.zeros(64, dtype=torch.bool)
    assert mean_over_valid(probs, nothing).tolist() == [0.0] * 8
    assert mean_over_valid(probs[:0]).tolist() == [0.0] * 8


def test_share_over_all_ranks(monkeypatch):
    """Another rank has assigned 4 tokens to the last expert."""
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "all_reduce", lambda assigned: assigned.add_(torch.tensor([0.0, 0.0, 4.0])))
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    torch.testing.assert_close(assignment_share(mask, sync=True), torch.tensor([3.0, 2.0, 5.0]) / 10)
    torch.testing.assert_close(assignment_share(mask), torch.tensor([3.0, 2.0, 1.0]) / 6)
