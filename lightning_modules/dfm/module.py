"""A discrete flow model as a LightningModule, and the comparison of its samplers.

Legend: B samples, D tokens, S tokens of the data, V ids (S, or S + 1 with the mask), K times.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MaxMetric, MeanMetric

from lightning_modules.dfm.block_oracle import BlockOracle
from lightning_modules.dfm.comparison import Sampler, sampler
from lightning_modules.dfm.exact_law import ExactLaw, kl, tv
from lightning_modules.dfm.judging import (
    Judge,
    KnownChain,
    block_law,
    chain_judges,
    image_judge,
    judgement,
    neighbour_judges,
)
from lightning_modules.dfm.losses import MaskedCrossEntropy, MixtureGeneralizedKL
from lightning_modules.dfm.metrics import chain_log_likelihood
from lightning_modules.dfm.networks import TokenMLP, TokenTransformer
from lightning_modules.dfm.oracles import MarkovOracle, TableOracle
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.posterior import CarryOverPosterior, PosteriorFromLogits
from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler, Scheduler
from lightning_modules.dfm.solvers import SolverOutput
from lightning_modules.dfm.solvers.time_grid import make_time_grid
from lightning_modules.dfm.sources import MaskSource, Source, UniformSource
from lightning_modules.generative.counted_random import uniform
from lightning_modules.generative.image_classifier import trained_classifier
from lightning_modules.optimizer import adamw

TIME_STREAM = -2
"""Stream of the random times; the path has the one after it."""
FURTHER = 0xD1B54A32D192ED03 - 2**64
"""A signed 64-bit number that is no step between streams."""
LAST_TIME = {"mask": 1e-3, "uniform": 5e-3}
MOST_STATES = 1_000
MOST_BATCHES = 200
"""Batches of real sequences that samples are compared with."""


@runtime_checkable
class HasChain(Protocol):
    """A data module that knows the law of its data."""

    chain: KnownChain


@runtime_checkable
class HasTokenImages(Protocol):
    """A data module whose tokens are images: all of ``train`` or ``test`` with their classes, and those of other tokens."""

    def labelled_images(self, split: str) -> tuple[Tensor, Tensor]: ...

    def as_images(self, tokens_nD: Tensor) -> Tensor: ...


class DiscreteFlowModule(LightningModule):
    r"""Sequences of tokens from masks or from noise: a network learns the posterior of the data, and samplers follow its rates.

    .. math::
        x_t^i = \begin{cases} x_1^i & \text{with probability } \kappa_t \\ x_0^i & \text{else} \end{cases}, \qquad
        \text{net}(x_t, t) \to p^i(x_1^i \mid x_t)

    A batch has ``tokens`` int64 ``[B, D]`` and ``seed`` int64 ``[B]``, of which all that is random of a sequence is made: a
    training set gives new seeds in each epoch, an evaluation the same ones each time. So results do not depend on batch size and
    number of processes, and a resumed run goes on exactly.

    An evaluation looks at each sequence in K states, one in each of K equal parts of the time up to :math:`1 - \delta'`, and at
    one more at its end; with these, ``elbo_nats`` bounds the negative log-likelihood of a sequence,

    .. math::
        -\log p(x_1) \le \int_0^{1 - \delta'} \mathbb E \sum_i \ell^i \, \mathrm dt
            - \mathbb E \sum_i \log p^i(x_1^i \mid x_{1 - \delta'}).

    Where the data module knows the law of its data, ``posterior_error`` is the mean total variation between the network's
    posterior of a token and the true one.

    The test compares samplers at equal numbers of network calls, ``test/<sampler>/calls_<n>/<metric>``: what they really
    cost (``nfe_calls`` of a batch, which for masks includes the last draw, and ``evals_per_sample``); how far the pairs and triples
    of neighbouring tokens are from those of training data (``bigram_tv``, ``trigram_tv``); the excess of the negative
    log-likelihood of a token over the entropy (``nll_excess``) where the law is known, and where it has few states the total
    variation (``exact_tv``) and divergence (``exact_kl``) of the exact law of the samples from it; and for images
    ``frechet_classifier_features``, Fréchet's distance from the training images in the eyes of a small classifier.
    ``test/held_out/<metric>`` says the same of the test set.

    Args:
        vocab_size: S; None takes the data's own.
        length: D; None takes the data's own.
        source: ``mask`` or ``uniform``.
        network: ``mlp`` or ``transformer``.
        width: width of the network.
        depth: hidden layers, residual blocks, or blocks of attention.
        embed: of an ``mlp``, numbers that stand for a token; None: one-hot.
        residual: of an ``mlp``, whether it has residual blocks.
        num_heads: heads of the attention.
        checkpointing: of a ``transformer``, compute blocks anew in the backward pass to save memory.
        scheduler: ``polynomial``, :math:`\kappa_t = t^n`, or ``cosine``.
        power: n.
        loss: ``gen_kl``, the bound's integrand a token, or ``ce``, the cross entropy of masked (or of all) tokens.
        last_time: δ', how far from the data training times end; None: 0.001 for masks, 0.005 else.
        eval_times: K.
        samplers: what is compared, see :func:`~lightning_modules.dfm.comparison.sampler`; the first is that of ``predict``.
        calls: network calls at which they are compared; the last is that of ``predict``.
        delta: how far from the data their grids end.
        quality_samples: samples of each in the test; 0: none.
        sample_batch: samples that are made at once.
        lr: learning rate.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps in which the learning rate rises.
        min_lr_ratio: share of the learning rate at the end of its cosine.

    Raises:
        ValueError: if sizes are unknown, options do not fit together, or a batch has no ``seed``.

    Source: Corrected Samplers for Discrete Flow Models (arXiv 2601.22519); Gat et al. 2024 (arXiv 2407.15595).
    """

    smoke: ClassVar[dict[str, Any]] = {
        **{"width": 16, "depth": 1, "num_heads": 2, "eval_times": 2},
        **{"calls": [2], "quality_samples": 8, "sample_batch": 8},
    }

    def __init__(
        self,
        vocab_size: int | None = None,
        length: int | None = None,
        source: Literal["mask", "uniform"] = "mask",
        network: Literal["mlp", "transformer"] = "mlp",
        width: int = 128,
        depth: int = 3,
        embed: int | None = None,
        residual: bool = False,
        num_heads: int = 4,
        checkpointing: bool = False,
        scheduler: Literal["polynomial", "cosine"] = "polynomial",
        power: float = 1.0,
        loss: Literal["gen_kl", "ce"] = "gen_kl",
        last_time: float | None = None,
        eval_times: int = 8,
        samplers: list[str] | None = None,
        calls: list[int] | None = None,
        delta: float = 0.05,
        quality_samples: int = 0,
        sample_batch: int = 1_000,
        lr: float = 2e-3,
        weight_decay: float = 0.0,
        warmup_share: float = 0.0,
        min_lr_ratio: float = 0.0,
    ) -> None:
        super().__init__()
        if vocab_size is None or length is None:
            raise ValueError("DiscreteFlowModule needs vocab_size and length when its data do not tell them")
        if source not in LAST_TIME or network not in ("mlp", "transformer") or loss not in ("gen_kl", "ce"):
            raise ValueError(f"{source=}, {network=} or {loss=} is unknown: use mask or uniform; mlp or transformer; gen_kl or ce")
        last_time = LAST_TIME[source] if last_time is None else last_time
        for name, share in {"last_time": last_time, "delta": delta}.items():
            if not 0 < share < 1:
                raise ValueError(f"{name}={share} must lie between 0 and 1")
        if eval_times < 1 or quality_samples < 0 or sample_batch < 1:
            raise ValueError(f"{eval_times=} and {sample_batch=} must be positive and {quality_samples=} not negative")
        self.save_hyperparameters()
        self.length, self.vocab_size = length, vocab_size
        self.source: Source = MaskSource(vocab_size) if source == "mask" else UniformSource(vocab_size)
        schedule: Scheduler = CosineScheduler() if scheduler == "cosine" else PolynomialScheduler(power)
        self.path = DiscretePath(schedule)
        sizes = (self.source.vocabulary_size, vocab_size, length, width, depth)
        knows_time = source == "uniform"  # what is masked does not tell more at another time
        net: nn.Module
        if network == "mlp":
            net = TokenMLP(*sizes, embed, residual, time=knows_time)
        else:
            net = TokenTransformer(*sizes, num_heads, time=knows_time, checkpointing=checkpointing)
        mask_id = self.source.mask_id
        self.posterior = PosteriorFromLogits(net) if mask_id is None else CarryOverPosterior(net, mask_id)
        self.bound = MixtureGeneralizedKL(self.path, "none")
        self.cross_entropy = MaskedCrossEntropy(mask_id, "none")
        self.loss, self.end, self.eval_times = loss, 1 - last_time, eval_times
        self.samplers = [sampler(name) for name in samplers or ("euler", "tc", "lc", "theta_trap")]
        self.calls = sorted(calls or (4, 8, 16, 32))
        for each in self.samplers:
            each.steps_within(self.calls[0])
        self.delta, self.quality_samples, self.sample_batch = delta, quality_samples, sample_batch
        self.lr, self.weight_decay, self.warmup_share, self.min_lr_ratio = lr, weight_decay, warmup_share, min_lr_ratio
        self.measures = nn.ModuleDict(
            {f"{stage}_{name}": MeanMetric() for stage in ("val", "test") for name in ("loss", "elbo_nats", "posterior_error")}
        )
        self._oracle: tuple[nn.Module, ...] = ()  # in a tuple, as it is no part of the model and of its checkpoints

    def setup(self, stage: str) -> None:
        """Look whether the data module knows the law of its data."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        self._oracle = (self.oracle(data.chain),) if isinstance(data, HasChain) else ()

    def oracle(self, chain: KnownChain) -> nn.Module:
        """Return the true posterior of data with a known law, in float64."""
        initial_S, transition_SS = torch.from_numpy(chain.initial_S), torch.from_numpy(chain.transition_SS)
        return BlockOracle(MarkovOracle(initial_S, transition_SS, self.source, self.path.scheduler), chain.block_length)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the posterior of the data, probabilities ``[B, D, V]``, of states ``[B, D]`` at times ``[B]``."""
        return self.posterior(x, t)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        seed_B = _seeds(batch)
        t_B = self.end * uniform(seed_B, TIME_STREAM)
        state_BD = self._state(batch["tokens"], t_B, seed_B)
        log_p_BDV = self.posterior.log_probabilities(state_BD, t_B.float())
        objective = self.bound if self.loss == "gen_kl" else self.cross_entropy
        loss = objective(log_p_BDV, batch["tokens"], state_BD, t_B).mean()
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "test")

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return a new sequence for each of the batch, int64 ``[B, D]``."""
        return self.sample(_seeds(batch)).x

    @torch.no_grad()
    def sample(self, seed_B: Tensor, name: str | None = None, calls: int | None = None) -> SolverOutput:
        """Make sequences.

        Args:
            seed_B: seed of each, int64 ``[B]``; the same seed begins alike with every sampler.
            name: sampler; None: the first of the module.
            calls: network calls; None: the most of the module.
        """
        chosen = self.samplers[0] if name is None else sampler(name)
        return self._sample(chosen, seed_B, self.calls[-1] if calls is None else calls)

    @torch.no_grad()
    def surprise(self, tokens_BD: Tensor, seed_B: Tensor) -> tuple[Tensor, str]:
        """Return how improbable sequences are, in nats a token, ``[B]``, and what that is.

        Args:
            tokens_BD: sequences, int64 ``[B, D]``.
            seed_B: seeds of the states in which a bound looks at them, int64 ``[B]``.
        """
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if isinstance(data, HasChain):
            initial_S, transition_SS = (
                torch.from_numpy(table).to(self.device) for table in (data.chain.initial_S, data.chain.transition_SS)
            )
            likelihood_B = chain_log_likelihood(tokens_BD, initial_S, transition_SS, data.chain.block_length)
            return -likelihood_B / self.length, "negative log-likelihood (nats a token)"
        return self._measured(tokens_BD, seed_B)["elbo_nats"] / self.length, "bound by the network (nats a token)"

    def on_test_epoch_end(self) -> None:
        """Log the comparison of the samplers."""
        if self.quality_samples:
            judges = self._judges()
            for each in self.samplers:
                for calls in self.calls:
                    found = self._judged(each, calls, judges) | self._exact(each, calls)
                    self.log_dict({f"test/{each.label}/calls_{calls}/{name}": value for name, value in found.items()})
            held_out = judgement(judges, self._sequences(self.trainer.datamodule.predict_dataloader()))  # type: ignore[attr-defined]
            self.log_dict({f"test/held_out/{name}": value for name, value in held_out.items()})

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(
            self.parameters(),
            self.lr,
            self.weight_decay,
            warmup_share=self.warmup_share,
            min_lr_ratio=self.min_lr_ratio,
            max_steps=self.trainer.max_steps,
            max_epochs=self.trainer.max_epochs,
            decay_vectors=False,
        )

    def _state(self, tokens_BD: Tensor, t_B: Tensor, seed_B: Tensor) -> Tensor:
        """Return states of the path, int64 ``[B, D]``."""
        noise_BD = self.source.init(tokens_BD.shape, device=tokens_BD.device, seeds=seed_B)
        return self.path.sample(noise_BD, tokens_BD, t_B, seeds=seed_B).x_t

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> None:
        for name, values in self._measured(batch["tokens"], _seeds(batch)).items():
            mean: Any = self.measures[f"{stage}_{name}"]
            mean.update(values)
            self.log(f"{stage}/{name}", mean, prog_bar=name == "loss" and stage == "val")

    def _measured(self, tokens_BD: Tensor, seed_B: Tensor) -> dict[str, Tensor]:
        """Return the loss of tokens, the bound of each sequence, ``[B]``, and if the law is known the error of the posterior."""
        bounds, losses, errors = [], [], []
        for place in range(self.eval_times):
            own_B = _further(seed_B, place)
            t_B = self.end * (place + uniform(own_B, TIME_STREAM)) / self.eval_times
            state_BD = self._state(tokens_BD, t_B, own_B)
            log_p_BDV = self.posterior.log_probabilities(state_BD, t_B.float())
            bound_BD = self.bound(log_p_BDV, tokens_BD, state_BD, t_B)
            bounds.append(bound_BD.sum(dim=1) * self.end / self.eval_times)
            losses.append(bound_BD if self.loss == "gen_kl" else self.cross_entropy(log_p_BDV, tokens_BD, state_BD))
            for oracle in self._oracle:
                true_BDV = oracle.to(self.device)(x=state_BD, t=t_B)
                errors.append((log_p_BDV.exp() - true_BDV).abs().sum(dim=-1) / 2)
        own_B = _further(seed_B, self.eval_times)
        last_B = torch.full_like(seed_B, self.end, dtype=torch.float64)
        state_BD = self._state(tokens_BD, last_B, own_B)
        log_p_BDV = self.posterior.log_probabilities(state_BD, last_B.float())
        bounds.append(self.cross_entropy(log_p_BDV, tokens_BD, state_BD).sum(dim=1))
        error = {"posterior_error": torch.stack(errors)} if errors else {}
        return {"loss": torch.stack(losses), "elbo_nats": torch.stack(bounds).sum(dim=0), **error}

    def _sample(self, each: Sampler, seed_B: Tensor, calls: int) -> SolverOutput:
        return each.sample(self.posterior, self.path, self.source, self.length, seed_B, calls, self.delta)

    def _judges(self) -> dict[str, Judge]:
        """Return all judges of samples of these data, on the device."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        judges = neighbour_judges(self.vocab_size, self.length, self._sequences(data.train_dataloader()))
        if isinstance(data, HasChain):
            judges |= chain_judges(data.chain)
        if isinstance(data, HasTokenImages):
            images, labels = (part.to(self.device) for part in data.labelled_images("train"))
            classifier = trained_classifier(images, labels, int(labels.max()) + 1)
            mine = slice(self.trainer.global_rank, None, self.trainer.world_size)
            judges["frechet_classifier_features"] = image_judge(classifier, images[mine], data.as_images)
        return {name: Judge(judge.metric.to(self.device), judge.arguments) for name, judge in judges.items()}

    def _judged(self, each: Sampler, calls: int, judges: dict[str, Judge]) -> dict[str, Tensor]:
        """Make samples, each rank its share, and return what they cost and what the judges say."""
        nfe_calls, evals = MaxMetric().to(self.device), MeanMetric().to(self.device)

        def samples() -> Iterable[Tensor]:
            for seed_B in self._sample_seeds():
                output = self._sample(each, seed_B, calls)
                nfe_calls.update(output.nfe_calls)
                evals.update(output.evals_per_sample, len(seed_B))
                yield output.x

        found = judgement(judges, samples())
        return {"nfe_calls": nfe_calls.compute(), "evals_per_sample": evals.compute(), **found}

    def _sample_seeds(self) -> tuple[Tensor, ...]:
        """Return this rank's share of the seeds of samples, as many batches on each rank."""
        world = self.trainer.world_size
        mine = torch.arange(self.quality_samples, device=self.device)[self.trainer.global_rank :: world]
        return mine.tensor_split(-(-self.quality_samples // (self.sample_batch * world)))

    def _exact(self, each: Sampler, calls: int) -> dict[str, float]:
        """Return how far the exact law of samples is from a law of the data with few states; nothing where there is none."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        states = self.source.vocabulary_size**self.length
        if states > MOST_STATES or not isinstance(data, HasChain) or data.chain.blocks > 1:
            return {}
        table = block_law(data.chain).view([self.vocab_size] * self.length)
        truth = TableOracle(table, self.source, self.path.scheduler).marginal(1.0).flatten()
        laws = ExactLaw(lambda x, t: self(x.to(self.device), t.to(self.device)).cpu(), self.source, self.path, self.length)
        grid = make_time_grid(self.path.scheduler, each.steps_within(calls), delta=self.delta)
        law = laws.finish(laws.propagate(each.solver, grid, **each.options), grid.t[-1].item())
        return {"exact_tv": tv(truth, law), "exact_kl": kl(truth, law)}

    def _sequences(self, loader: Iterable[dict[str, Tensor]]) -> Iterable[Tensor]:
        """Return the first sequences of a loader, this rank's share of them."""
        return (batch["tokens"].to(self.device) for batch in islice(loader, MOST_BATCHES))


def _seeds(batch: dict[str, Tensor]) -> Tensor:
    if "seed" not in batch:
        raise ValueError("DiscreteFlowModule needs batches with a `seed` a sequence: use a data module of datamodules.tokens")
    return batch["seed"]


def _further(seed_B: Tensor, place: int) -> Tensor:
    """Return other seeds for each further state that is made of the same sequences."""
    return seed_B + torch.full((), FURTHER, device=seed_B.device) * place
