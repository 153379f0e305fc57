import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from lightning_modules.tlvs.contrastive import contrast


def test_by_hand():
    logits, blind = torch.tensor([[2.0, 1.9, -1.0]]), torch.tensor([[2.0, 0.0, -1.0]])
    scores = contrast(logits, blind, weight=1.0, cutoff=0.1)
    # the third lies below 2 + log 0.1 = -0.303
    assert torch.allclose(scores, torch.tensor([[2.0, 3.8, -torch.inf]]))


def test_without_weight_or_with_blind_logits_that_are_equal_the_best_token_stays():
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    for scores in (contrast(logits, torch.randn_like(logits), weight=0.0), contrast(logits, torch.full_like(logits, 3.0))):
        assert torch.equal(scores.argmax(dim=-1), logits.argmax(dim=-1))


@pytest.mark.parametrize(("prior", "evidence"), [(2.2, -0.8), (2.2, 0.4), (-1.0, 0.6)])
def test_the_evidence_of_two_classes_counts_once_more_for_each_unit_of_weight(prior, evidence):
    blind, logits = torch.tensor([[prior, 0.0]]), torch.tensor([[prior + evidence, 0.0]])
    for weight in (0.0, 0.5, 1.0, 4.0):
        yes, no = contrast(logits, blind, weight, cutoff=1e-30)[0].tolist()
        assert yes - no == pytest.approx(prior + (1 + weight) * evidence, abs=1e-5)
    if prior * evidence < 0:
        turning = -prior / evidence - 1
        margins = [
            torch.diff(contrast(logits, blind, weight, cutoff=1e-30)[0]).item() for weight in (turning - 1e-3, turning + 1e-3)
        ]
        assert margins[0] * margins[1] < 0


def test_a_cell_of_unclear_evidence_is_decided_by_the_evidence_under_strong_contrast():
    """One pixel of Gaussian noise: an object of unknown contrast is there with probability 0.9 or not."""
    noise, contrasts = 0.1, np.linspace(0.1, 0.8, 201)
    background, prior = NormalDist(0.0, noise), math.log(0.9 / 0.1)

    def evidence(pixel: float) -> float:
        seen = np.mean([NormalDist(height, noise).pdf(pixel) for height in contrasts])
        return math.log(seen / background.pdf(pixel))

    def present(pixel: float, weight: float) -> bool:
        logits, blind = (torch.tensor([[margin, 0.0]]) for margin in (prior + evidence(pixel), prior))
        return bool(contrast(logits, blind, weight, cutoff=1e-30)[0].argmax() == 0)

    joint_present = 0.9 * np.mean([NormalDist(height, noise).pdf(0.1) for height in contrasts])
    posterior = joint_present / (joint_present + 0.1 * background.pdf(0.1))
    assert math.log(posterior / (1 - posterior)) == pytest.approx(prior + evidence(0.1))
    blank = 0.1
    assert -prior < evidence(blank) < 0
    assert present(blank, weight=0.0)
    assert [present(pixel, weight=100.0) for pixel in (0.0, blank, 0.3, 0.6)] == [
        evidence(pixel) > 0 for pixel in (0.0, blank, 0.3, 0.6)
    ]


@pytest.mark.parametrize(("weight", "cutoff"), [(-1.0, 0.1), (1.0, 0.0), (1.0, 2.0)])
def test_bad_input(weight, cutoff):
    with pytest.raises(ValueError, match="cutoff"):
        contrast(torch.ones(1, 2), torch.ones(1, 2), weight, cutoff)
