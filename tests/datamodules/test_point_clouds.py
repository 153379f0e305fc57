import math

import pytest
import torch

from datamodules import GaussianMixtureDataModule


def ready(**options: object) -> GaussianMixtureDataModule:
    data = GaussianMixtureDataModule(**options)  # type: ignore[arg-type]
    data.setup("fit")
    return data


def test_points_lie_where_the_mixture_says():
    data = ready(std=0.05, train_size=20_000)
    points = data.points("train").double()
    told = data.model_arguments()
    means, weights = torch.tensor(told["means"]), torch.tensor(told["weights"])
    assert told["dimension"] == 2
    assert torch.allclose(means[1], torch.tensor([0.5, math.sqrt(3) / 2]))
    assert weights.sum().item() == pytest.approx(1)
    nearest = torch.cdist(points, means.double()).argmin(dim=1)
    assert torch.allclose(nearest.bincount() / len(points), weights, atol=0.015)
    assert (points - means[nearest]).std().item() == pytest.approx(0.05, rel=0.02)
    assert not torch.equal(data.points("val"), data.points("test"))
    assert torch.equal(data.points("train"), ready(std=0.05, train_size=20_000, seed=9).points("train"))
    assert not torch.equal(data.points("train"), ready(std=0.05, train_size=20_000, generator_seed=1).points("train"))


def test_one_gaussian_and_one_point_in_any_dimension():
    data = ready(means=[[1.0, 2.0, 3.0]], std=0.0, train_size=5)
    assert torch.equal(data.points("train"), torch.tensor([[1.0, 2.0, 3.0]]).expand(5, 3))
    gaussian = ready(num_components=1, radius=0.0, std=2.0, train_size=10_000).points("train")
    assert gaussian.mean().abs() < 0.05
    assert gaussian.std().item() == pytest.approx(2, rel=0.02)


def test_batches_hold_points_and_seeds():
    data = ready(train_size=32, batch_size=8, val_size=6)
    first = next(iter(data.train_dataloader()))
    assert first["point"].shape == (8, 2)
    assert first["seed"].dtype == torch.int64
    assert len(set(first["seed"].tolist())) == 8
    validation = next(iter(data.val_dataloader()))
    assert validation["seed"].tolist() == list(range(6))
    assert torch.equal(validation["point"], data.points("val"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, "6 components need as many means"),
        ({"num_components": 2, "means": [[0.0], [1.0, 2.0]]}, "of equal length"),
        ({"std": -1.0}, r"std=-1\.0"),
        ({"weights": [0.0] + [1.0] * 5}, "must be positive"),
        ({"val_size": 0}, "val_size=0"),
    ],
)
def test_bad_input_is_refused(options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        GaussianMixtureDataModule(**options)  # type: ignore[arg-type]
