import pytest
import torch
from torch.nn import functional

from lightning_modules.gesc.consistency import consistency

P = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
Q = torch.tensor([[0.5, 0.5]], dtype=torch.float64)


@pytest.mark.parametrize(("form", "value"), [("official_code", 0.117973), ("jensen_shannon", 0.101749)])
def test_by_hand(form: str, value: float):
    assert consistency(P.log(), Q.log(), 1.0, form).item() == pytest.approx(value, abs=1e-6)  # type: ignore[arg-type]
    assert consistency(P.log(), P.log(), 1.0, form).item() == pytest.approx(0, abs=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["official_code", "jensen_shannon"])
def test_it_is_the_divergence_of_torch_at_a_temperature(form: str):
    g = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(7, 4, generator=g, dtype=torch.float64) for _ in range(2))
    p, q = (torch.softmax(logits / 2.5, dim=-1) for logits in (a, b))
    m = (p + q) / 2
    if form == "jensen_shannon":  # kl_div(log x, y) is KL(y || x)
        terms = [functional.kl_div(m.log(), x, reduction="batchmean") for x in (p, q)]
    else:
        terms = [functional.kl_div(x.log(), m, reduction="batchmean") for x in (p, q)]
    assert consistency(a, b, 2.5, form).item() == pytest.approx(2.5**2 * sum(terms).item() / 2, rel=1e-9)  # type: ignore[arg-type, union-attr]


def test_only_the_first_pass_learns():
    a, b = P.log().requires_grad_(), Q.log().requires_grad_()
    consistency(a, b).backward()
    assert a.grad is not None
    assert a.grad.abs().sum() > 0
    assert b.grad is None


def test_a_certain_prediction_stays_finite():
    a = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = consistency(a, -a, 1.0)
    loss.backward()
    assert loss.item() == pytest.approx(0.6931, abs=1e-3), "two certain predictions that differ: log 2"
    assert a.grad is not None
    assert a.grad.isfinite().all()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="temperature=0"):
        consistency(P, Q, 0)
    with pytest.raises(ValueError, match="'kl' is unknown"):
        consistency(P, Q, 1.0, "kl")  # type: ignore[arg-type]
