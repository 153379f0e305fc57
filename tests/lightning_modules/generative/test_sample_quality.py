import pytest
import torch

from lightning_modules.generative.image_classifier import ImageClassifier, trained_classifier
from lightning_modules.generative.sample_quality import sample_quality
from lightning_modules.generative.time_deciles import TimeDeciles, decile


def bars(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright row whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 3
    image = 0.3 * torch.randn(count, 1, 8, 8, generator=generator)
    image[torch.arange(count), 0, 2 * label + 1] += 2
    return image, label


@pytest.fixture(scope="module")
def classifier() -> ImageClassifier:
    with torch.inference_mode():
        return trained_classifier(*bars(300, 0), num_classes=3, steps=80, batch_size=32)


def test_it_is_always_the_same_and_leaves_the_random_numbers_alone(classifier: ImageClassifier):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    again = trained_classifier(*bars(300, 0), num_classes=3, steps=80, batch_size=32)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, other) for one, other in zip(classifier.parameters(), again.parameters(), strict=True))
    other = trained_classifier(*bars(300, 0), num_classes=3, steps=2, batch_size=32, seed=1)
    assert not torch.equal(other.head.weight, again.head.weight)
    assert not classifier.training


def test_what_is_better_scores_better(classifier: ImageClassifier):
    image, label = bars(120, 1)
    made = {
        "the same kind": bars(120, 2),
        "other classes": (image, (label + 1) % 3),
        "noise": (torch.randn(120, 1, 8, 8, generator=torch.Generator().manual_seed(3)), label),
    }
    found = {
        name: sample_quality(classifier, [(image[:50], label[:50]), (image[50:], label[50:])], [batch])
        for name, batch in made.items()
    }
    assert {values["classifier_accuracy"].item() for values in found.values()} == {1.0}
    assert [values["sample_accuracy"].item() for values in found.values()][:2] == [1.0, 0.0]
    assert found["other classes"]["frechet_classifier_features"].item() == pytest.approx(0, abs=1e-3)
    close, far = (found[name]["frechet_classifier_features"].item() for name in ("the same kind", "noise"))
    assert 0 < 10 * close < far
    features = classifier.features(image)
    assert features.shape == (120, classifier.num_features)
    assert torch.equal(classifier(image), classifier.head(features))


def test_tenths_of_the_time():
    times = torch.tensor([0.0, 0.09, 0.1, 0.55, 0.99, 1.0])
    assert decile(times).tolist() == [0, 0, 1, 5, 9, 9]
    metric = TimeDeciles()
    metric.update(torch.tensor([1.0, 2.0, 3.0]), times[:3])
    metric.update(torch.tensor([6.0, 4.0, 5.0]), torch.tensor([0.05, 0.99, 1.0]))
    found = metric.compute()
    assert found[[0, 1, 9]].tolist() == [3.0, 3.0, 4.5]
    assert found[2:9].isnan().all()
