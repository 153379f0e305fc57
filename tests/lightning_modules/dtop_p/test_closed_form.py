import math

import pytest
import torch

from lightning_modules.dtop_p.closed_form import active_share, initial_threshold, plant_gain, spectral_radius
from lightning_modules.dtop_p.selection import top_p_mask


@pytest.mark.parametrize(
    ("target", "num_experts", "p"),
    [(8, 64, 0.425), (4, 32, 0.409), (16, 128, 0.433), (4, 16, 0.588), (2, 16, 0.375), (2, 8, 0.545)],
)
def test_initial_threshold(target, num_experts, p):
    assert initial_threshold(target, num_experts) == pytest.approx(p, abs=5e-4)


def test_gaussian_logits_give_the_predicted_count():
    logits = torch.randn(4000, 1024, generator=torch.Generator().manual_seed(0))
    count = top_p_mask(logits.softmax(-1), 0.44).sum(-1).double().mean().item()
    assert 1024 * active_share(0.44) == pytest.approx(127.9, abs=0.05)
    assert count == pytest.approx(1024 * active_share(0.44) + 0.5, rel=0.01)


def test_gain_is_the_slope():
    assert plant_gain(initial_threshold(8, 64)) == pytest.approx(0.50, abs=0.005)
    assert plant_gain(initial_threshold(4, 16)) == pytest.approx(0.76, abs=0.005)
    slope = (active_share(0.3 + 1e-5, theta=1.7) - active_share(0.3 - 1e-5, theta=1.7)) / 2e-5
    assert plant_gain(0.3, theta=1.7) == pytest.approx(slope, rel=1e-6)


def test_stability():
    assert spectral_radius(0.78, 0.3, 0.2) == pytest.approx(0.877, abs=5e-4)
    assert spectral_radius(0.78, 1.5, 0.5) == pytest.approx(1.397, abs=5e-4)
    generator = torch.Generator().manual_seed(0)
    gains = torch.rand(500, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.5, 1.5, 3.0])
    stable = [g * ki > 0 and g * kp < 1 and g * (2 * kp + ki) < 2 for g, kp, ki in gains.tolist()]  # Jury's criterion
    assert stable == [spectral_radius(*row) < 1 for row in gains.tolist()]
    assert 50 < sum(stable) < 450


def test_error_shrinks_by_the_spectral_radius():
    """The recursion of the error, run by hand."""
    gain, kp, ki = 0.78, 0.3, 0.2
    before, now = 1.0, 1.0
    for _ in range(60):
        before, now = now, (1 - gain * kp - gain * ki) * now + gain * kp * before
    assert now / before == pytest.approx(spectral_radius(gain, kp, ki), rel=1e-6)
    assert not math.isclose(now, before)


@pytest.mark.parametrize("target", [0, 0.5, 9])
def test_target_out_of_range(target):
    with pytest.raises(ValueError, match="between 1 and the 8 experts"):
        initial_threshold(target, 8)
