import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from lightning_modules.tlvs.gate import StepGate, log_sensitivity, ridge

GENERATOR = torch.Generator().manual_seed(0)
STATES = torch.randn(200, 5, generator=GENERATOR)
SENSITIVITY = torch.rand(200, generator=GENERATOR) ** 4
ENTROPY = torch.rand(200, generator=GENERATOR) * 3


def test_ridge_is_that_of_scikit_learn():
    features = np.concatenate([STATES.numpy(), np.ones((200, 1))], axis=1)
    peer = Ridge(alpha=1.0, fit_intercept=False, solver="cholesky").fit(features, ENTROPY.numpy())
    assert np.allclose(ridge(STATES, ENTROPY).numpy(), peer.coef_, atol=1e-5)


def test_factors_by_hand():
    gate = StepGate(1, temperature=0.5, reference_entropy=0.5)
    gate.sensitivity_probe.copy_(torch.tensor([1.0, 0.0]))
    gate.entropy_probe.copy_(torch.tensor([0.0, 0.2]))
    gate.threshold.fill_(-1.0)
    state = torch.tensor([[-1.0], [0.0]])
    sens = torch.tensor([0.5, 1 / (1 + math.exp(-2))])
    assert torch.allclose(gate(state, "sens"), sens)
    assert torch.allclose(gate(state, "risk"), torch.full((2,), 0.4))
    assert torch.allclose(gate(state, "both"), 0.4 * sens)
    assert torch.equal(gate(state, "none"), torch.ones(2))


def test_a_fitted_gate_has_bounds_and_rises_with_what_it_predicts():
    gate = StepGate(5)
    gate.fit(STATES, SENSITIVITY, ENTROPY)
    assert gate.threshold.item() == pytest.approx(log_sensitivity(SENSITIVITY).median().item())
    assert torch.allclose(gate.sensitivity_probe, ridge(STATES, log_sensitivity(SENSITIVITY)).float())
    assert torch.allclose(gate.entropy_probe, ridge(STATES, ENTROPY).float())
    strength = gate(100 * STATES)
    assert 0 <= strength.min() < 0.1
    assert 1.4 < strength.max() <= 1.5
    order = gate.predicted_log_sensitivity(STATES).argsort()
    assert (gate(STATES, "sens")[order].diff() >= 0).all()


def test_bad_input():
    with pytest.raises(ValueError, match="none, sens, risk, both"):
        StepGate(2)(torch.ones(1, 2), "all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="temperature=0"):
        StepGate(2, temperature=0)
