import pytest
import torch

from lightning_modules.rl.sac import actor_loss, critic_loss, soft_value_target, temperature_loss


def test_only_a_terminal_state_cuts_the_bootstrap():
    reward = torch.tensor([1.0, 1.0])
    values, log_prob = torch.tensor([[2.0, 2.0], [4.0, 4.0]]), torch.tensor([-0.5, -0.5])
    target = soft_value_target(reward, torch.tensor([False, True]), values, log_prob, torch.tensor(0.2), 0.9)
    # min(2, 4) + 0.2 * 0.5 = 2.1
    assert target.tolist() == pytest.approx([1 + 0.9 * 2.1, 1.0])


def test_losses_by_hand():
    values = torch.tensor([[1.0, 3.0], [2.0, 1.0]])
    assert critic_loss(values, torch.tensor([1.0, 1.0])).item() == pytest.approx((0 + 4) / 2 + (1 + 0) / 2)
    assert actor_loss(values, torch.tensor([0.5, 1.5]), torch.tensor(2.0)).item() == pytest.approx((1 - 1 + 3 - 1) / 2)


@pytest.mark.parametrize(("log_prob", "direction"), [(3.0, 1.0), (-3.0, -1.0)])
def test_temperature_rises_while_the_entropy_is_too_low(log_prob: float, direction: float):
    log_alpha = torch.zeros((), requires_grad=True)
    temperature_loss(log_alpha, torch.full((4,), log_prob), target_entropy=-1.0).backward()
    assert torch.sign(-log_alpha.grad) == direction
