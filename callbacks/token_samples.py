"""Draw how samplers of tokens compare, and what they make."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.token_figures import Point, image_sheet, sampler_figure, text_sheet

COMPARED = re.compile(r"test/([^/]+)/calls_(\d+)/([^/]+)")
COSTS = ("nfe_calls", "evals_per_sample")
TITLES = {
    "exact_tv": "total variation from the data",
    "exact_kl": "divergence from the data (nats)",
    "sample_tv": "histogram's total variation",
    "nll_excess": "excess neg. log-likelihood (nats a token)",
    "bigram_tv": "total variation of pairs of tokens",
    "trigram_tv": "total variation of triples of tokens",
    "frechet_classifier_features": "Fréchet distance of classifier features",
}


class HasX(Protocol):
    """Samples, int64 ``[B, D]``."""

    x: Tensor


class HasLabel(Protocol):
    """A sampler with a name."""

    label: str


@runtime_checkable
class MakesTokens(Protocol):
    """A module that makes sequences of tokens from seeds with named samplers, and says how improbable a sequence is."""

    samplers: Sequence[HasLabel]
    calls: Sequence[int]

    def sample(self, seed_B: Tensor, name: str | None = None, calls: int | None = None) -> HasX: ...

    def surprise(self, tokens_BD: Tensor, seed_B: Tensor) -> tuple[Tensor, str]: ...


class SamplerCurves(Callback):
    """Draw, when a test ends, what it logged as ``test/<sampler>/calls_<n>/<metric>``: a figure ``samplers_<metric>`` each.

    A module that logs ``test/held_out/<metric>`` has it as a line.
    """

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        logged = trainer.callback_metrics
        found = {match.groups(): float(logged[name]) for name in logged if (match := COMPARED.fullmatch(name))}
        for metric in dict.fromkeys(metric for _, _, metric in found if metric not in COSTS):
            curves: dict[str, list[Point]] = {}
            for (sampler, calls, name), value in found.items():
                if name == metric:
                    curves.setdefault(sampler, []).append(Point(int(calls), found[sampler, calls, COSTS[1]], value))
            floor = logged.get(f"test/held_out/{metric}")
            with figure_style():
                figure = sampler_figure(curves, TITLES.get(metric, metric), None if floor is None else float(floor))
                publish_figure(trainer, figure, f"samplers_{metric}")


class TokenSamples(Callback):
    """Draw, when a test ends, what each sampler of the module makes of the same seeds: the figure ``samples_<calls>_calls``.

    A data module that turns tokens into images (``as_images``) gets a sheet of them, one that turns them into text (``decode``) the
    texts with the negative log-likelihood of a token, or a bound of it by the network. Others get no figure.

    Args:
        samples: sequences of each sampler.
        calls: network calls; None: all at which the module compares its samplers.
        seed: first seed.

    Raises:
        ValueError: if a number is not positive, or the module makes no tokens.
    """

    def __init__(self, samples: int = 8, calls: list[int] | None = None, seed: int = 0) -> None:
        if samples < 1 or any(number < 1 for number in calls or ()):
            raise ValueError(f"TokenSamples needs positive numbers, got {samples=} and {calls=}")
        self.samples, self.calls, self.seed = samples, calls, seed

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, MakesTokens):
            raise ValueError(f"TokenSamples needs a module that samples tokens, which {type(pl_module).__name__} does not")

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]
        as_images, decode = getattr(data, "as_images", None), getattr(data, "decode", None)
        if not trainer.is_global_zero or (as_images is None and decode is None):
            return
        for calls in self.calls or pl_module.calls:
            with figure_style():
                figure = self._images(pl_module, calls, as_images) if as_images else self._texts(pl_module, calls, decode)
                publish_figure(trainer, figure, f"samples_{calls}_calls")

    def _images(self, module: MakesTokens, calls: int, as_images: Callable[[Tensor], Tensor]) -> Any:
        return image_sheet({name: as_images(tokens) for name, tokens in self._made(module, calls).items()})

    def _texts(self, module: MakesTokens, calls: int, decode: Callable[[np.ndarray], str] | None) -> Any:
        assert decode is not None
        sheet, what = {}, ""
        for name, tokens_BD in self._made(module, calls).items():
            numbers, what = module.surprise(tokens_BD, self._seeds(module))
            sheet[name] = list(zip(map(decode, tokens_BD.cpu().numpy()), numbers.tolist(), strict=True))
        return text_sheet(sheet, what)

    def _made(self, module: MakesTokens, calls: int) -> dict[str, Tensor]:
        return {each.label: module.sample(self._seeds(module), each.label, calls).x for each in module.samplers}

    def _seeds(self, module: Any) -> Tensor:
        return torch.arange(self.seed, self.seed + self.samples, device=module.device)
