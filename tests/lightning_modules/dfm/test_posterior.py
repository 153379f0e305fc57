import pytest
import torch

from lightning_modules.dfm.posterior import CarryOverPosterior, PosteriorFromLogits, check_probabilities

LOGITS = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(0))
STATE = torch.tensor([[5, 0, 5], [5, 5, 5], [1, 2, 3], [4, 5, 5]])
TIMES = torch.full((4,), 0.5)


def logits_of(columns: int):
    return lambda x, t, **extras: LOGITS[..., :columns] * extras.get("scale", 1.0)


@pytest.mark.parametrize("columns", [5, 6])
def test_masked_posterior_by_hand(columns: int):
    p = CarryOverPosterior(logits_of(columns), mask_id=5)(x=STATE, t=TIMES)
    assert p.shape == (4, 3, 6)
    assert torch.allclose(p[0, 0, :5], LOGITS[0, 0, :5].softmax(dim=-1))
    assert (p[..., 5] == 0).all()
    assert torch.equal(p[2], torch.eye(6)[STATE[2]])
    assert torch.equal(p[0, 1], torch.eye(6)[0])
    check_probabilities(p, STATE, mask_id=5)


def test_gradients_are_finite_where_values_are_impossible():
    logits = LOGITS.clone().requires_grad_()
    model = CarryOverPosterior(lambda x, t: logits, mask_id=5)
    model.log_probabilities(STATE, TIMES).clamp_min(-30).sum().backward()
    assert logits.grad.isfinite().all()
    masked = STATE == 5
    assert (logits.grad[masked][:, :5].abs().sum(dim=-1) > 0).all()
    assert (logits.grad[~masked] == 0).all()


def test_softmax_of_half_precision_is_made_in_single():
    model = PosteriorFromLogits(lambda x, t: LOGITS.bfloat16())
    p = model(x=STATE, t=TIMES)
    assert p.dtype == torch.float32
    assert torch.allclose(p, LOGITS.bfloat16().float().softmax(dim=-1))


def test_conditions_reach_the_network():
    model = CarryOverPosterior(logits_of(5), mask_id=5)
    assert torch.allclose(model(x=STATE, t=TIMES, scale=0.0)[1], torch.tensor([0.2] * 5 + [0.0]).expand(3, -1))


def test_wrong_answers_are_named():
    good = CarryOverPosterior(logits_of(5), mask_id=5)(x=STATE, t=TIMES)
    with pytest.raises(ValueError, match="step 7 .*logits"):
        check_probabilities(LOGITS, STATE, mask_id=5, step=7)
    with pytest.raises(ValueError, match="NaN"):
        check_probabilities(good * torch.nan, STATE, mask_id=5)
    negative = good.clone()
    negative[1, 0, :2] += torch.tensor([-2.0, 2.0])
    with pytest.raises(ValueError, match="negative"):
        check_probabilities(negative, STATE, mask_id=5)
    with pytest.raises(ValueError, match="mask id, .*CarryOverPosterior"):
        check_probabilities(0.9 * good + 0.1 * torch.eye(6)[5], STATE, mask_id=5)
    with pytest.raises(ValueError, match="not masked any more"):
        check_probabilities(0.9 * good + 0.1 * torch.eye(6)[0], STATE, mask_id=5)
    check_probabilities(LOGITS.softmax(dim=-1), STATE)
    with pytest.raises(ValueError, match="needs 5 or 6 logits, got 4"):
        CarryOverPosterior(logits_of(4), mask_id=5)(STATE, TIMES)
