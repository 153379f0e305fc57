import pytest
import torch
from torch import Tensor, nn

from lightning_modules.f_dpm_solver.edm_preconditioning import Preconditioned

SIGMAS = torch.tensor([0.01, 0.5, 1.0, 7.0, 80.0], dtype=torch.float64)


class Ideal(nn.Module):
    """Answers with what a perfect network would, for one known pair of data and noise."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor, level_B: Tensor) -> Tensor:
        self.seen += [x, level_B]
        return self.answer


def pair() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    clean, noise = (torch.randn(len(SIGMAS), 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return clean, noise


@pytest.mark.parametrize("prediction", ["eps", "v"])
def test_a_perfect_network_gives_the_data(prediction: str):
    clean, noise = pair()
    a, s = 1 / (1 + SIGMAS**2).sqrt(), SIGMAS / (1 + SIGMAS**2).sqrt()
    targets = {"eps": noise, "v": a[:, None] * noise - s[:, None] * clean}
    model = Preconditioned(Ideal(targets[prediction]), prediction)  # type: ignore[arg-type]
    assert torch.allclose(model(clean + SIGMAS[:, None] * noise, SIGMAS), clean, atol=1e-12)
    seen, level = model.network.seen
    assert torch.allclose(seen, a[:, None] * clean + s[:, None] * noise)
    assert torch.allclose(level, SIGMAS.log() / 4)


@pytest.mark.parametrize("prediction", ["edm", "eps", "v"])
def test_the_loss_is_the_plain_error_of_what_is_predicted(prediction: str):
    clean, noise = pair()
    model = Preconditioned(nn.Identity(), prediction, 0.7)  # type: ignore[arg-type]
    model.network = Ideal(torch.zeros_like(clean))
    skip, out, _ = model.coefficients(SIGMAS)
    target = (clean - skip[:, None] * (clean + SIGMAS[:, None] * noise)) / out[:, None]
    assert torch.allclose(model.loss(clean, noise, SIGMAS).double(), target.square().mean(dim=1), rtol=1e-5)
    model.network = Ideal(target)
    assert model.loss(clean, noise, SIGMAS).max() < 1e-12


def test_edm_sees_and_predicts_unit_variance():
    sigma_data = 0.7
    skip, out, scale = Preconditioned(nn.Identity(), "edm", sigma_data).coefficients(SIGMAS)
    assert torch.allclose(scale.square() * (sigma_data**2 + SIGMAS**2), torch.ones_like(SIGMAS))
    # variance of (y - skip (y + sigma n)) / out with independent y and n
    variance = ((1 - skip).square() * sigma_data**2 + (skip * SIGMAS).square()) / out.square()
    assert torch.allclose(variance, torch.ones_like(SIGMAS))
    # skip makes the error that out multiplies as small as can be: the derivative of the numerator is 0
    assert torch.allclose((1 - skip) * sigma_data**2, skip * SIGMAS**2)
    # the weight of the spec: (sigma^2 + sd^2) / (sigma sd)^2
    assert torch.allclose(out**-2, (SIGMAS**2 + sigma_data**2) / (SIGMAS * sigma_data) ** 2)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="'noise' is unknown"):
        Preconditioned(nn.Identity(), "noise")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sigma_data=0\.0"):
        Preconditioned(nn.Identity(), "edm", 0.0)
