import pytest
import torch
from lightning import Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from lightning_modules import PatchCNNModule
from lightning_modules.sheaf_admm.cnn import PatchCNN, SizeInvariantCNN

QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
SMALL = {"channels": (4, 8), "hidden": 16, "lr": 1e-2, "warmup_steps": 2}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def images(batch: int = 2, size: int = 14) -> Tensor:
    return torch.rand(batch, size, size, generator=torch.Generator().manual_seed(0))


def framed(picture: Tensor, pixels: int) -> Tensor:
    return functional.pad(picture, (pixels,) * 4)


def digits(seed: int = 0, batch: int = 20) -> dict[str, Tensor]:
    """Ten shades of grey, each with its own stripes."""
    label = torch.arange(batch) % 10
    noise = torch.rand(batch, 10, 10, generator=torch.Generator().manual_seed(seed))
    image = 0.2 * noise
    image[torch.arange(batch), label] += 0.8
    return {"image": image, "label": label}


def loader(*batches: dict[str, Tensor]) -> DataLoader:
    return DataLoader(list(batches), batch_size=None)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (PatchCNN(), (9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 49 + 1) * 128 + 129 * 10),
        (PatchCNN((8, 16), hidden=32), 26_698),
        (SizeInvariantCNN(), 28_426),
        (SizeInvariantCNN((8, 16), hidden=32), 80 + 1_168 + 17 * 32 + 33 * 10),
    ],
)
def test_parameter_counts(network, expected):
    assert count(network) == expected
    assert count(PatchCNN()) == 421_642


@pytest.mark.parametrize("network", [PatchCNN((2, 3), hidden=4), SizeInvariantCNN((2, 3), hidden=4)])
@pytest.mark.parametrize("shape", [(8, 8), (14, 14), (15, 29), (60, 60)])
def test_every_size_is_taken(network, shape):
    assert network(torch.rand(2, *shape)).shape == (2, 10)


def test_the_network_is_the_stated_one():
    torch.manual_seed(0)
    network = PatchCNN((2, 3), hidden=4, pool=2).double()
    weight = dict(network.named_parameters())
    picture = images(size=8).double()
    one = functional.conv2d(picture[:, None], weight["convolutions.0.weight"], weight["convolutions.0.bias"], padding=1)
    one = one.clamp_min(0).unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(4, 5))
    two = functional.conv2d(one, weight["convolutions.3.weight"], weight["convolutions.3.bias"], padding=1).clamp_min(0)
    quarters = two.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(4, 5)).flatten(1)
    hidden = (quarters @ weight["head.2.weight"].T + weight["head.2.bias"]).clamp_min(0)
    assert torch.allclose(network(picture), hidden @ weight["head.4.weight"].T + weight["head.4.bias"], atol=1e-12)

    network = SizeInvariantCNN((2, 3), hidden=4).double()
    network.convolutions.load_state_dict({name.removeprefix("convolutions."): w for name, w in weight.items() if "convol" in name})
    weight = dict(network.named_parameters())
    hidden = (two.amax(dim=(2, 3)) @ weight["head.0.weight"].T + weight["head.0.bias"]).clamp_min(0)
    assert torch.allclose(network(picture), hidden @ weight["head.2.weight"].T + weight["head.2.bias"], atol=1e-12)


def random_biases(network: nn.Module) -> nn.Module:
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return network.double()


def test_a_wide_black_frame_has_the_same_maxima_whatever_its_width():
    torch.manual_seed(1)
    network = random_biases(SizeInvariantCNN((4, 8), hidden=16))
    picture = images().double()
    at_eight = network(framed(picture, 8))
    for pixels in (10, 16, 24):
        assert torch.allclose(network(framed(picture, pixels)), at_eight, atol=1e-12)
    # the first black pixels do change the answer: they bring features of their own, and an odd number moves the max-pooling
    for pixels in (0, 2, 9):
        assert (network(framed(picture, pixels)) - at_eight).abs().max() > 1e-3


def test_without_biases_black_has_no_features():
    torch.manual_seed(0)
    network = SizeInvariantCNN((4, 8), hidden=16).double()
    for layer in network.convolutions:
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.bias)
    picture = framed(images().double(), 4)
    for pixels in (2, 4, 8):
        assert torch.allclose(network(framed(picture, pixels)), network(picture), atol=1e-12)


def test_a_frame_moves_what_the_pooling_network_sees():
    torch.manual_seed(0)
    network = random_biases(PatchCNN((4, 8), hidden=16))
    picture = images().double()
    assert (network(framed(picture, 24)) - network(framed(picture, 16))).abs().max() > 1e-3


@pytest.mark.parametrize("network", ["cnn", "size_invariant"])
def test_training_makes_the_loss_fall(network):
    torch.manual_seed(0)
    module = PatchCNNModule(network, **SMALL)
    before = functional.cross_entropy(module(digits()), digits()["label"]).item()
    trainer = Trainer(max_steps=60, max_epochs=-1, enable_checkpointing=False, **QUIET)
    trainer.fit(module, loader(digits()), loader(digits(seed=1)))
    assert trainer.global_step == 60
    loss = functional.cross_entropy(module(digits()), digits()["label"])
    assert loss.item() < 0.7 * before
    assert all(gradient is not None for gradient in torch.autograd.grad(loss, list(module.parameters())))
    assert {"train/loss", "val/loss", "val/accuracy"} <= set(trainer.callback_metrics)


@pytest.mark.parametrize("network", ["cnn", "size_invariant"])
def test_every_suite_has_its_own_accuracy(network):
    torch.manual_seed(0)
    module = PatchCNNModule(network, test_suites=["pad4", "drop10_removed"], **SMALL)
    clean = loader(digits(), digits(seed=2, batch=7))
    padded = loader({"image": framed(digits(seed=1)["image"], 4), "label": digits()["label"]})
    removed = loader({**digits(seed=3), "dropped": torch.ones(20, 16, dtype=torch.bool)})
    trainer = Trainer(**QUIET)
    reported = {
        name: value for part in trainer.test(module, [clean, padded, removed], verbose=False) for name, value in part.items()
    }
    prefixes = ("test/", "test/pad4/", "test/drop10_removed/")
    assert set(reported) == {prefix + name for prefix in prefixes for name in ("loss", "accuracy")}
    for prefix, batches in zip(prefixes, (clean, padded, removed), strict=True):
        logits = torch.cat([module(batch) for batch in batches])
        labels = torch.cat([batch["label"] for batch in batches])
        assert reported[f"{prefix}accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())
        assert reported[f"{prefix}loss"] == pytest.approx(functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert torch.equal(trainer.predict(module, clean)[0], module(digits()).argmax(-1))


def test_a_checkpoint_loads_without_arguments(tmp_path):
    module = PatchCNNModule("size_invariant", test_suites=["pad4"], **SMALL)
    trainer = Trainer(max_steps=1, enable_checkpointing=False, **QUIET)
    trainer.fit(module, loader(digits()))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = PatchCNNModule.load_from_checkpoint(tmp_path / "model.ckpt")
    assert torch.equal(loaded(digits()), module(digits()))
    assert loaded.test_prefixes == ["test/", "test/pad4/"]
    assert loaded.lr == 1e-2


def test_unknown_networks_are_refused():
    with pytest.raises(ValueError, match="'cnn' or 'size_invariant', not 'vit'"):
        PatchCNNModule("vit")
