import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_modules.r2r2.effective_rank import EffectiveRank, effective_rank, singular_values


def features(seed: int, samples: int = 30, dim: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -2, dim, dtype=torch.float64)
    return torch.randn(samples, dim, generator=generator, dtype=torch.float64) * scales + 0.3


def test_known_ranks():
    assert effective_rank(torch.eye(5, dtype=torch.float64)).item() == pytest.approx(5)
    assert effective_rank(torch.outer(torch.arange(1.0, 5.0), torch.arange(1.0, 4.0)).double()).item() == pytest.approx(
        1, abs=1e-10
    )
    assert effective_rank(torch.zeros(4, 3)).item() == 0
    assert effective_rank(torch.ones(4, 3), center=True).item() == 0


def test_diagonal():
    shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert effective_rank(torch.diag(8 * shares)).item() == pytest.approx(2**1.5)


@pytest.mark.parametrize("center", [False, True])
def test_against_numpy(center: bool):
    for seed in range(5):
        z = features(seed)
        matrix = z.numpy() - z.numpy().mean(axis=0) * center
        sigma = np.linalg.svd(matrix, compute_uv=False)
        p = sigma / sigma.sum()
        assert effective_rank(z, center).item() == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-12)
        assert np.allclose(singular_values(z, center), sigma)


def test_rotation_scale_and_order_change_nothing():
    for seed in range(5):
        z = features(seed)
        rotation = torch.linalg.qr(features(seed + 100, 6)).Q
        for same in (z @ rotation, 7 * z, z.flip(0)):
            assert effective_rank(same).item() == pytest.approx(effective_rank(z).item(), rel=1e-10)


def test_the_metric_collects_batches_up_to_its_limit():
    z = features(0)
    metric, limited = EffectiveRank(center=True), EffectiveRank(limit=12)
    for batch in z.split(8):
        metric.update(batch)
        limited.update(batch)
    assert metric.compute() == effective_rank(z, center=True)
    assert limited.compute() == effective_rank(z[:12])
    metric.reset()
    metric.update(z[:9])
    assert metric.compute() == effective_rank(z[:9], center=True)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        effective_rank(torch.tensor([[1.0, torch.nan]]))
    with pytest.raises(ValueError, match=r"\[2, 2, 2\]: flatten"):
        effective_rank(torch.zeros(2, 2, 2))
    with pytest.raises(ValueError, match="limit"):
        EffectiveRank(limit=0)
