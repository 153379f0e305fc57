import pytest
import torch

from lightning_modules.tlvs.directions import refine_directions, signal_to_noise


def planted(steps: int, width: int, share: float, size: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return differences of one layer that have a signal along a unit vector in a share of the steps, where, and the vector."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.nn.functional.normalize(torch.randn(width, generator=generator, dtype=torch.float64), dim=0)
    chosen = torch.arange(steps) < round(share * steps)
    noise = torch.randn(steps, width, generator=generator, dtype=torch.float64)
    return (noise + size * chosen[:, None] * direction)[None], chosen, direction


def test_a_planted_direction_is_found():
    differences, chosen, direction = planted(2_000, 64, 0.5, 5.0)
    for refinement in ("pc1", "mean", "weighted"):
        found = refine_directions(differences, chosen, torch.ones(2_000), refinement)[0].double()
        assert found @ direction > 0.99
        assert found.norm().item() == pytest.approx(1)
    # the first component takes the sign of the mean
    assert refine_directions(-differences, chosen, torch.ones(2_000))[0].double() @ direction < -0.99


def test_the_first_component_is_that_of_the_singular_value_decomposition():
    differences, chosen, _ = planted(200, 8, 0.4, 1.0)
    first = torch.linalg.svd(differences[0, chosen], full_matrices=False).Vh[0]
    assert (refine_directions(differences, chosen, torch.ones(200))[0].double() @ first).abs().item() == pytest.approx(1, abs=1e-6)


def test_weights_and_the_mean_of_all():
    differences = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, -9.0]]])
    chosen, sensitivity = torch.tensor([True, True, False]), torch.tensor([3.0, 4.0, 100.0])
    assert torch.allclose(refine_directions(differences, chosen, sensitivity, "weighted")[0], torch.tensor([0.6, 0.8]))
    together = refine_directions(differences, chosen, sensitivity, "mean_all")[0]
    assert torch.allclose(together, torch.nn.functional.normalize(torch.tensor([1.0, -8.0]), dim=0))


def test_nuisance_is_taken_out():
    generator = torch.Generator().manual_seed(1)
    chosen = torch.arange(100) < 50
    differences = torch.zeros(1, 100, 3)
    differences[0, :50] = torch.tensor([1.0, 1.0, 0.0])
    differences[0, 50:, 1] = torch.randn(50, generator=generator)
    assert torch.allclose(refine_directions(differences, chosen, torch.ones(100))[0], torch.tensor([1.0, 1.0, 0]) / 2**0.5)
    assert torch.allclose(refine_directions(differences, chosen, torch.ones(100), nuisance_rank=1)[0], torch.eye(3)[0], atol=1e-6)


def test_selection_raises_the_signal_to_noise_ratio_of_the_estimate():
    share = 0.1
    differences, chosen, direction = planted(20_000, 16, share, 1.0)
    # the mean along the signal is mu of the chosen and share * mu of all; its variance is that of the noise over the steps
    of_all = (differences[0].mean(0) @ direction) ** 2 * 20_000
    of_chosen = (differences[0, chosen].mean(0) @ direction) ** 2 * 2_000
    assert (of_chosen / of_all).item() == pytest.approx(1 / share, rel=0.15)


def test_signal_to_noise_by_hand():
    # mean (2, 0), trace of the covariance 1 + 4
    differences = torch.tensor([[[1.0, 2.0], [3.0, -2.0]]])
    assert signal_to_noise(differences).item() == pytest.approx(4 / 5)


@pytest.mark.parametrize(("chosen", "refinement", "message"), [([False], "pc1", "rho"), ([True], "pca", "pc1, mean")])
def test_bad_input(chosen, refinement, message):
    with pytest.raises(ValueError, match=message):
        refine_directions(torch.ones(1, 1, 2), torch.tensor(chosen), torch.ones(1), refinement)
