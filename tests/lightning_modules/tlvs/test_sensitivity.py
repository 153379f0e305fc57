import math

import pytest
import torch

from lightning_modules.tlvs.sensitivity import entropy, gini, lorenz_curve, select_tokens, top_share, visual_sensitivity

P, Q = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()


def test_divergences_by_hand():
    kl = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    js = (0.9 * math.log(0.9 / 0.7) + 0.1 * math.log(0.1 / 0.3) + 0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.3)) / 2
    assert visual_sensitivity(P, Q).item() == pytest.approx(kl, abs=1e-6) == pytest.approx(0.368064, abs=1e-6)
    assert visual_sensitivity(P, Q, "js").item() == pytest.approx(js, abs=1e-6) == pytest.approx(0.101749, abs=1e-6)
    targets = torch.tensor([1])
    assert visual_sensitivity(P, Q, "logratio", targets).item() == pytest.approx(math.log(0.1 / 0.5), abs=1e-6)


@pytest.mark.parametrize("divergence", ["kl", "js"])
def test_equal_distributions_and_impossible_tokens(divergence):
    logits = torch.tensor([[3.0, -1.0, -torch.inf]])
    assert visual_sensitivity(logits, logits + 5, divergence).item() == pytest.approx(0, abs=1e-6)
    shifted = torch.tensor([[-1.0, 3.0, -torch.inf]])
    assert 0 < visual_sensitivity(logits, shifted, divergence).item() < torch.inf


def test_js_is_bounded_by_the_logarithm_of_two():
    far = visual_sensitivity(torch.tensor([[80.0, -80.0]]), torch.tensor([[-80.0, 80.0]]), "js")
    assert far.item() == pytest.approx(math.log(2), abs=1e-6)


def test_half_precision_is_widened():
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    half = visual_sensitivity(logits.half(), -logits.half())
    assert half.dtype == torch.float32
    assert torch.allclose(half, visual_sensitivity(logits, -logits), rtol=1e-2)


def test_entropy():
    assert torch.allclose(entropy(torch.tensor([[0.0] * 4, [90.0, 0, 0, 0]])), torch.tensor([math.log(4), 0.0]), atol=1e-6)


def test_selection():
    assert select_tokens(torch.tensor([0.1, 0.5, 0.2, 0.9]), 0.5).tolist() == [False, True, False, True]
    assert select_tokens(torch.tensor([0.1, 0.5, 0.2, 0.9]), 1.0).all()


def test_concentration():
    even, one = torch.ones(10), torch.tensor([5.0] + [0.0] * 9)
    assert top_share(even) == pytest.approx(0.2)
    assert top_share(one) == 1
    assert gini(even) == pytest.approx(0)
    # all but one of n steps hold nothing: (n - 1) / n
    assert gini(one) == pytest.approx(0.9)
    steps, held = lorenz_curve(torch.tensor([1.0, 3.0]))
    assert steps.tolist() == [0, 0.5, 1]
    assert held.tolist() == [0, 0.75, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: visual_sensitivity(P, Q[:, :1]), "align"),
        (lambda: visual_sensitivity(P, Q, "logratio"), "targets_T"),
        (lambda: visual_sensitivity(P, Q, "l2"), "kl, js, logratio"),
        (lambda: select_tokens(P[0], 0.0), "rho=0.0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
