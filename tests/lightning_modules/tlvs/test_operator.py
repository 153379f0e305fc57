import pytest
import torch

from lightning_modules.tlvs.operator import steer

X, Y = torch.eye(3)[0], torch.eye(3)[1]


@pytest.mark.parametrize("strength", [0.3, 1.0, 4.0])
def test_an_orthogonal_state_turns_by_the_strength(strength):
    turned = steer(5 * X, Y, strength)
    assert turned.norm().item() == pytest.approx(5)
    assert torch.cosine_similarity(turned, Y, dim=0).item() == pytest.approx(strength / (1 + strength**2) ** 0.5, abs=1e-6)


def test_norms_stay():
    states = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0)) * 10
    strengths = torch.linspace(0, 2, 24).view(4, 6)
    turned = steer(states, X, strengths)
    assert torch.allclose(turned.norm(dim=-1), states.norm(dim=-1), rtol=1e-5)
    assert torch.allclose(turned[0, 0], states[0, 0], rtol=1e-6)
    assert not torch.allclose(turned[3, 5], states[3, 5], rtol=1e-2)


def test_parallel_opposed_and_zero_states():
    assert torch.allclose(steer(2 * X, X, 0.7), 2 * X)
    assert steer(-X, X, 1.0).isfinite().all()
    assert torch.equal(steer(0 * X, X, 1.0), torch.zeros(3))


def test_half_precision_does_not_overflow():
    state = torch.full((1024,), 300.0, dtype=torch.float16)
    turned = steer(state, torch.eye(1024)[0], 0.1)
    assert turned.dtype == torch.float16
    assert turned.float().norm().item() == pytest.approx(300 * 32, rel=1e-2)
