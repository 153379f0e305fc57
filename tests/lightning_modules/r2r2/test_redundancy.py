import math
import warnings

import pytest
import torch
from torch import Tensor

from lightning_modules.r2r2.redundancy import RedundancyReduction, unit_norm_bound


def latents(seed: int, batch: int = 12, dim: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, dim, generator=generator, dtype=torch.float64) + torch.randn(dim, generator=generator) / 2


def centred(**settings: float) -> RedundancyReduction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RedundancyReduction(centering=True, **settings)


def rr(z_Bd: Tensor, of: RedundancyReduction | None = None) -> Tensor:
    return (of or RedundancyReduction()).terms(z_Bd)["rr"] / 0.01


def test_by_hand():
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)  # C = [[10, 14], [14, 20]], centred [[2, 2], [2, 2]]
    loss, logs = RedundancyReduction(coef_rr=0.5, coef_var=2.0, target_std=2.0, eps=0)(z)
    assert logs["rr"].item() == pytest.approx(196)
    assert logs["var"].item() == pytest.approx(2 - math.sqrt(2))
    assert logs["std_mean"].item() == pytest.approx(math.sqrt(2))
    assert logs["offdiag_abs"].item() == pytest.approx(14)
    assert loss.item() == pytest.approx(0.5 * 196 + 2 * (2 - math.sqrt(2)))
    loss, logs = centred(eps=0)(z)
    assert logs["rr"].item() == pytest.approx(4)
    assert logs["var"].item() == 0
    assert loss.item() == pytest.approx(0.04)


def test_the_mean_alone_parts_the_two_forms():
    """C without centring is the covariance and B/(B-1) mu mu^T."""
    for seed in range(20):
        z = latents(seed)
        B, d = z.shape
        mean = z.mean(0)
        C = torch.cov(z.T) + B / (B - 1) * torch.outer(mean, mean)
        expected = (C.square().sum() - C.diagonal().square().sum()) / (d * (d - 1))
        assert rr(z).item() == pytest.approx(expected.item(), rel=1e-12)


def test_only_the_centred_form_is_blind_to_a_shift():
    z, shift = latents(0), torch.arange(5) / 3
    assert rr(z + shift, centred()).item() == pytest.approx(rr(z, centred()).item(), rel=1e-12)
    assert abs(rr(z + shift) - rr(z)) > 0.1


def test_constant_features_are_redundant_unless_centred():
    c = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    z = c.repeat(4, 1).requires_grad_()
    square = torch.outer(c, c).square()
    expected = (4 / 3) ** 2 * (square.sum() - square.diagonal().sum()) / 6
    value = rr(z)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.item() == pytest.approx(expected.item())
    assert (gradient.abs() > 0.01).all()
    value = rr(z, centred())
    (gradient,) = torch.autograd.grad(value, z)
    assert value.item() == 0
    assert not gradient.any()


def vicreg(z_Bd: Tensor, eps: float = 1e-4) -> tuple[Tensor, Tensor]:
    """Variance and covariance terms as in the authors' code of VICReg."""
    z_Bd = z_Bd - z_Bd.mean(dim=0)
    variance = torch.mean(torch.nn.functional.relu(1 - torch.sqrt(z_Bd.var(dim=0) + eps)))
    cov = (z_Bd.T @ z_Bd) / (len(z_Bd) - 1)
    off_diagonal = cov.flatten()[:-1].view(len(cov) - 1, len(cov) + 1)[:, 1:].flatten()
    return variance, off_diagonal.pow(2).sum().div(len(cov))


def test_centred_it_is_vicreg():
    for seed in range(10):
        z = latents(seed).requires_grad_()
        variance, covariance = vicreg(z)
        ours = centred(coef_rr=4.0, coef_var=1.0).terms(z)
        for reference, term in ((variance, ours["var"]), (covariance, ours["rr"])):
            assert term.item() == pytest.approx(reference.item(), rel=1e-12)
            assert torch.allclose(*(torch.autograd.grad(x, z, retain_graph=True)[0] for x in (reference, term)), atol=1e-14)


def test_order_of_features_and_samples_is_nothing_but_rotation_counts():
    loss = RedundancyReduction(0.3, 0.4)
    for seed in range(10):
        z = latents(seed)
        value = loss(z)[0].item()
        assert loss(z[:, torch.randperm(5)])[0].item() == pytest.approx(value, rel=1e-12)
        assert loss(z[torch.randperm(12)])[0].item() == pytest.approx(value, rel=1e-12)
        rotation = torch.linalg.qr(latents(seed + 100, 5)).Q
        assert abs(rr(z @ rotation) - rr(z)) > 1e-3


def test_rows_of_unit_norm_stay_under_their_bound():
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        B, d = torch.randint(2, 20, (2,), generator=generator).tolist()
        z = torch.nn.functional.normalize(latents(seed, B, d), dim=1)
        assert 0 <= rr(z) <= unit_norm_bound(B, d) * (1 + 1e-12)
    equal_rows = torch.full((8, 100), 0.1, dtype=torch.float64)
    assert 0.98 * unit_norm_bound(8, 100) < rr(equal_rows) < unit_norm_bound(8, 100)
    assert unit_norm_bound(256, 128) == pytest.approx(6.2e-5, rel=0.01)


def test_the_scale_acts_inside_only():
    z = latents(0)
    scaled = RedundancyReduction(latent_scale="sqrt_dim")(z)[1]
    assert torch.equal(scaled["rr"], RedundancyReduction()(z * math.sqrt(5))[1]["rr"])
    assert torch.equal(scaled["var"], RedundancyReduction(latent_scale=math.sqrt(5))(z)[1]["var"])


@pytest.mark.parametrize("eps", [0.0, 1e-4])
def test_a_dead_feature_has_a_finite_gradient(eps: float):
    z = latents(0)
    z[:, 2] = 0
    z.requires_grad_()
    RedundancyReduction(eps=eps)(z)[0].backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_half_precision_is_computed_in_float32():
    z = latents(0).to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        loss, logs = RedundancyReduction()(z)
    assert loss.dtype == torch.float32
    assert torch.equal(logs["rr"], RedundancyReduction()(z.float())[1]["rr"])


def test_the_sum_of_the_terms_is_the_loss():
    z, loss = latents(0), RedundancyReduction(0.3, 0.7)
    assert loss(z)[0].item() == pytest.approx(sum(loss.terms(z).values()).item())
    assert not any(value.requires_grad for value in loss(z.requires_grad_())[1].values())


@pytest.mark.parametrize("shape", [(1, 4), (4, 1)])
def test_too_few_samples_or_features_are_refused(shape: tuple[int, int]):
    with pytest.raises(ValueError, match=f"at least 2 samples and 2 features, got {shape[0]} and {shape[1]}"):
        RedundancyReduction()(torch.zeros(shape))


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"\[2, 3, 4\]: flatten"):
        RedundancyReduction()(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="coef_rr"):
        RedundancyReduction(coef_rr=-1)
    with pytest.raises(ValueError, match="latent_scale"):
        RedundancyReduction(latent_scale="sqrt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="latent_scale"):
        RedundancyReduction(latent_scale=0)


def test_centring_is_warned_about():
    with pytest.warns(UserWarning, match="constant eigenmode"):
        RedundancyReduction(centering=True)
