from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn

from datamodules import BigramOracleDataModule, DigitTokensDataModule, MarkovBlocksDataModule
from lightning_modules.dfm.block_oracle import BlockOracle
from lightning_modules.dfm.comparison import sampler
from lightning_modules.dfm.judging import block_law
from lightning_modules.dfm.module import DiscreteFlowModule
from lightning_modules.dfm.oracles import TableOracle

torch.set_num_threads(1)
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}


def model(**options: Any) -> DiscreteFlowModule:
    torch.manual_seed(0)
    small = {"vocab_size": 8, "length": 3, "width": 32, "depth": 2, "samplers": ["tc"], "calls": [4]}
    return DiscreteFlowModule(**{**small, **options})


def blocks(**options: Any) -> MarkovBlocksDataModule:
    return MarkovBlocksDataModule(**{"train_size": 1_024, "val_size": 16, "test_size": 100, "batch_size": 64, **options})


def results_of(folder: Path, module: DiscreteFlowModule, data: Any) -> dict[str, float]:
    (found,) = Trainer(default_root_dir=folder, **QUIET).test(module, datamodule=data, verbose=False)
    return dict(found)


class Perfect(nn.Module):
    """The true posterior of blocks of three tokens in the place of a network's."""

    def __init__(self, module: DiscreteFlowModule) -> None:
        super().__init__()
        table = block_law(blocks().chain).view(8, 8, 8)
        self.oracle = BlockOracle(TableOracle(table, module.source, module.path.scheduler), 3)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.oracle(x=x, t=t.double())

    def log_probabilities(self, x: Tensor, t: Tensor) -> Tensor:
        return self(x, t).log()


def perfect(**options: Any) -> DiscreteFlowModule:
    module = model(**options)
    module.posterior = Perfect(module)  # type: ignore[assignment]
    return module


@pytest.mark.parametrize("source", ["mask", "uniform"])
def test_what_the_network_learns_from(monkeypatch: pytest.MonkeyPatch, source: str):
    module, seen = model(source=source, length=50, width=4), {}
    tokens = torch.randint(8, (400, 50), generator=torch.Generator().manual_seed(0))
    batch = {"tokens": tokens, "seed": torch.arange(400)}

    def log_probabilities(x: Tensor, t: Tensor) -> Tensor:
        seen.update(x=x, t=t)
        return torch.zeros(*x.shape, module.source.vocabulary_size).log_softmax(dim=-1).requires_grad_()

    monkeypatch.setattr(module.posterior, "log_probabilities", log_probabilities)
    monkeypatch.setattr(module, "log", lambda *arguments, **options: None)
    module.training_step(batch, 0)
    x, t = seen["x"], seen["t"]
    assert 0 < t.min() < 0.02 < 0.97 < t.max() < 1
    assert t.mean().item() == pytest.approx(0.5, abs=0.05)
    kept = (x == tokens).float()
    expected = t if source == "mask" else t + (1 - t) / 8
    # a mean of 20 000 coins is off by .0035
    assert (kept.mean(dim=1) - expected).mean().item() == pytest.approx(0, abs=0.015)
    assert torch.corrcoef(torch.stack([kept.mean(dim=1), t]))[0, 1] > 0.9
    other = x[kept == 0]
    assert (other == 8).all() if source == "mask" else set(other.tolist()) == set(range(8))
    first = dict(seen)
    module.training_step({name: value[[7, 3]] for name, value in batch.items()}, 1)
    assert all(torch.equal(seen[name], first[name][[7, 3]]) for name in seen), "what is random belongs to the sequence"


@pytest.mark.parametrize(("source", "bound"), [("mask", 6.0279478), ("uniform", 7.852883)])
def test_the_bound_of_a_perfect_network(source: str, bound: float):
    module, data = perfect(source=source, eval_times=100), blocks(test_size=3_000)
    data.setup("test")
    batch = next(iter(data._loader(data.test_set, 3_000)))
    measured = module._measured(batch["tokens"], batch["seed"])
    # the deviation of the mean is about .02; to end at 1 - .005 and draw all tokens at once there changes little
    assert measured["elbo_nats"].shape == (3_000,)
    assert measured["elbo_nats"].mean().item() == pytest.approx(bound, abs=0.1)
    assert measured["loss"].mean().item() * 3 == pytest.approx(bound, abs=0.2)
    assert "posterior_error" not in measured
    early = perfect(source=source, eval_times=50, last_time=0.3)
    tokens, seeds = batch["tokens"], batch["seed"]
    # the last draw must pay for what is not integrated, and a little more, as it draws tokens as if they were independent
    found = early._measured(tokens, seeds)
    assert -0.08 < found["elbo_nats"].mean().item() - bound < 0.3
    module._oracle = (module.oracle(data.chain),)
    assert module._measured(tokens[:50], seeds[:50])["posterior_error"].max() < 1e-6


@pytest.mark.parametrize(
    ("source", "options"), [("mask", {}), ("uniform", {}), ("mask", {"loss": "ce"}), ("mask", {"network": "transformer"})]
)
def test_it_learns(tmp_path: Path, source: str, options: dict[str, Any]):
    module, data = model(source=source, lr=1e-2, **options), blocks(seed=1)
    before = results_of(tmp_path, module, data)
    trainer = Trainer(default_root_dir=tmp_path, max_steps=150, limit_val_batches=0, enable_checkpointing=False, **QUIET)
    trainer.fit(module, datamodule=data)
    after = results_of(tmp_path, module, data)
    assert after["test/posterior_error"] < 0.9 * before["test/posterior_error"]
    assert after["test/elbo_nats"] < before["test/elbo_nats"] - 0.03
    assert not [name for name in module.state_dict() if "oracle" in name]


def test_an_evaluation_is_always_the_same(tmp_path: Path):
    module = model(quality_samples=60, sample_batch=60)
    found = results_of(tmp_path, module, blocks(eval_batch_size=7))
    assert results_of(tmp_path, module, blocks(eval_batch_size=50)) == pytest.approx(found, rel=1e-5)
    module.sample_batch = 9
    assert results_of(tmp_path, module, blocks(eval_batch_size=7)) == pytest.approx(found, rel=1e-5)


def test_the_test_compares_exact_laws(tmp_path: Path):
    module = perfect(samplers=["tc", "lc", "euler", "theta_trap"], calls=[8], quality_samples=2_000, eval_times=1)
    found = results_of(tmp_path, module, blocks())
    # masks, at equal calls: TC and Euler with 8 steps, LC with 4; then what is left is filled
    expected = {"tc": 0.04584528, "lc": 0.01349501, "euler": 0.03936195}
    assert {name: found[f"test/{name}/calls_8/exact_tv"] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["test/tc/calls_8/nfe_calls"] == found["test/tc/calls_8/evals_per_sample"] == 9
    assert found["test/theta_trap/calls_8/nfe_calls"] == found["test/lc/calls_8/nfe_calls"] == 9
    assert 6 < found["test/lc/calls_8/evals_per_sample"] < 8
    assert found["test/lc/calls_8/exact_kl"] < found["test/tc/calls_8/exact_kl"] < 0.03
    for name in ("tc", "lc"):
        assert found[f"test/{name}/calls_8/nll_excess"] == pytest.approx(0, abs=0.1)
        assert found[f"test/{name}/calls_8/sample_tv"] > found[f"test/{name}/calls_8/exact_tv"]
    assert 0 < found["test/held_out/bigram_tv"] < 0.5


def test_several_blocks_and_long_chains_have_samples_alone(tmp_path: Path):
    two = results_of(tmp_path, model(length=6, quality_samples=50), blocks(blocks=2))
    assert "test/posterior_error" in two
    assert {"test/tc/calls_4/sample_tv", "test/tc/calls_4/nll_excess"} <= two.keys()
    assert "test/tc/calls_4/exact_tv" not in two
    letters = BigramOracleDataModule(length=8, train_size=64, val_size=8, test_size=8, batch_size=8)
    long = results_of(tmp_path, model(vocab_size=27, length=8, quality_samples=20), letters)
    assert long["test/tc/calls_4/nll_excess"] > 0.2
    assert "test/tc/calls_4/sample_tv" not in long


def test_images_are_judged_by_a_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from lightning_modules.dfm import module as module_file

    real = module_file.trained_classifier
    monkeypatch.setattr(module_file, "trained_classifier", lambda *arguments: real(*arguments, steps=60))
    data = DigitTokensDataModule(train_size=200, val_size=8, test_size=150, batch_size=50)
    found = results_of(tmp_path, model(vocab_size=4, length=64, width=8, quality_samples=60), data)
    distance = "frechet_classifier_features"
    assert found[f"test/tc/calls_4/{distance}"] > 2 * found[f"test/held_out/{distance}"] > 0


def test_samples_belong_to_their_seeds():
    module = model(samplers=["lc", "euler"], calls=[4, 6])
    seeds = torch.tensor([5, 2, 9])
    output = module.sample(seeds)
    assert output.x.shape == (3, 3)
    assert output.x.max() < 8
    assert torch.equal(module.sample(seeds[1:]).x, output.x[1:])
    assert output.nfe_calls <= 7
    assert module.sample(seeds, "euler", 4).nfe_calls == 5
    assert torch.equal(module.predict_step({"tokens": output.x, "seed": seeds}, 0), output.x)


def test_how_improbable_a_sequence_is(tmp_path: Path):
    module, data = model(), blocks()
    trainer = Trainer(default_root_dir=tmp_path, **QUIET)
    trainer.test(module, datamodule=data, verbose=False)
    tokens = torch.tensor([[0, 1, 2], [2, 0, 5]])
    surprise, what = module.surprise(tokens, torch.arange(2))
    assert what.startswith("negative log-likelihood")
    # 3 (id 2): 1 with .9 / 5; 1: all alike
    expected = [-torch.tensor(p).log().item() / 3 for p in (1 / 512, 1 / 8 * 0.18 / 8)]
    assert surprise.tolist() == pytest.approx(expected)
    digits = DigitTokensDataModule(train_size=20, val_size=8, test_size=8, batch_size=8)
    other = model(vocab_size=4, length=64, width=8)
    Trainer(default_root_dir=tmp_path, **QUIET).test(other, datamodule=digits, verbose=False)
    bound, what = other.surprise(torch.zeros(2, 64, dtype=torch.int64), torch.arange(2))
    assert what.startswith("bound")
    assert bound.shape == (2,)


def test_samplers_at_equal_calls():
    assert [sampler(name).steps_within(8) for name in ("euler", "tau_categorical", "lc", "theta_rk2", "lc_8")] == [8, 8, 4, 4, 4]
    assert sampler("lc_8").options == {"j": 8}
    assert sampler("lc_auto").options == {"j": "auto"}
    assert (sampler("euler_cond").solver, sampler("euler_cond").options) == ("euler", {"rate": "conditional"})
    with pytest.raises(ValueError, match="as many calls as it needs"):
        sampler("uniformization").steps_within(8)
    with pytest.raises(ValueError, match="calls=1 leave it none"):
        sampler("lc").steps_within(1)
    with pytest.raises(ValueError, match="no sampler 'lcs'"):
        sampler("lcs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": None}, "needs vocab_size and length"),
        ({"source": "noise"}, "use mask or uniform"),
        ({"network": "cnn"}, "mlp or transformer"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"last_time": 0.0}, "last_time=0.0"),
        ({"eval_times": 0}, "eval_times=0"),
        ({"samplers": ["theta_trap"], "calls": [1, 4]}, "calls=1"),
        ({"samplers": ["heun"]}, "heun"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_a_batch_needs_seeds():
    with pytest.raises(ValueError, match="`seed`"):
        model().training_step({"tokens": torch.zeros(2, 3, dtype=torch.int64)}, 0)
