"""How samples are judged: by a known law, by neighbouring tokens, or by a classifier of images.

Legend: n samples, D tokens, S tokens of the vocabulary, F features.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.dfm.metrics import MOST_CELLS, ChainNLL, DiscreteTV, NGramTV, cells
from lightning_modules.generative.frechet_distance import FrechetFeatureDistance
from lightning_modules.generative.image_classifier import ImageClassifier

MOST_BINS = 4_096
N_GRAMS = {"bigram_tv": 2, "trigram_tv": 3}
MANY = 256


class KnownChain(Protocol):
    """A law of sequences: independent chains of ``block_length`` tokens, one behind the other."""

    initial_S: np.ndarray
    transition_SS: np.ndarray
    block_length: int
    blocks: int

    @property
    def entropy(self) -> float: ...


@dataclass(frozen=True)
class Judge:
    """A metric that knows all but the samples.

    Attributes:
        metric: the metric; each comparison works on a copy.
        arguments: make what it is updated with of samples ``[n, D]``.
    """

    metric: Metric
    arguments: Callable[[Tensor], tuple[Any, ...]]


def block_law(chain: KnownChain) -> Tensor:
    """Return the law of one block of a chain, the first token the slowest, float64 ``[S^L]``."""
    law = torch.from_numpy(chain.initial_S)
    transition_SS = torch.from_numpy(chain.transition_SS)
    for _ in range(chain.block_length - 1):
        last = torch.arange(len(law)) % len(transition_SS)
        law = (law[:, None] * transition_SS[last]).flatten()
    return law


def chain_judges(chain: KnownChain) -> dict[str, Judge]:
    """Return ``nll_excess``, and ``sample_tv`` of the first block if it has few states."""
    initial_S, transition_SS = torch.from_numpy(chain.initial_S), torch.from_numpy(chain.transition_SS)
    tokens, length = len(initial_S), chain.block_length
    entropy = chain.entropy / (length * chain.blocks)
    judges = {"nll_excess": Judge(ChainNLL(initial_S, transition_SS, length, entropy), lambda x: (x,))}
    if tokens**length <= MOST_BINS:
        judges["sample_tv"] = Judge(DiscreteTV(block_law(chain)), lambda x: (cells(x[:, :length], tokens),))
    return judges


def neighbour_judges(vocab_size: int, length: int, real: Iterable[Tensor]) -> dict[str, Judge]:
    """Return judges of pairs and triples of neighbouring tokens, where there are not too many kinds.

    Args:
        vocab_size: S.
        length: D.
        real: batches of real sequences ``[n, D]``; with several processes, this rank's share.
    """
    orders = {name: n for name, n in N_GRAMS.items() if n <= length and vocab_size**n <= MOST_CELLS}
    metrics = {name: NGramTV(vocab_size, n) for name, n in orders.items()}
    for tokens in real if metrics else ():
        for metric in metrics.values():
            metric.to(tokens.device).update(tokens, True)
    return {name: Judge(metric, lambda x: (x, False)) for name, metric in metrics.items()}


@torch.no_grad()
def image_judge(classifier: ImageClassifier, real: Tensor, as_images: Callable[[Tensor], Tensor]) -> Judge:
    """Return a judge that compares with real images in the features of a classifier.

    Args:
        classifier: a classifier of such images.
        real: real images ``[n, C, H, W]``; with several processes, this rank's share.
        as_images: makes images of tokens.
    """
    device = classifier.head.weight.device
    distance = FrechetFeatureDistance(classifier.num_features).to(device)
    for images in real.split(MANY):
        distance.update(classifier.features(images.to(device)), real=True)
    return Judge(distance, lambda x: (classifier.features(as_images(x)), False))


def judgement(judges: dict[str, Judge], samples: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return what each judge says of samples, float32 scalars.

    Args:
        judges: judges by name; their own metrics stay as they are.
        samples: batches ``[n, D]``; with several processes, this rank's share.
    """
    metrics: dict[str, Any] = {name: judge.metric.clone() for name, judge in judges.items()}
    for tokens in samples:
        for name, metric in metrics.items():
            metric.update(*judges[name].arguments(tokens))
    return {name: metric.compute().float() for name, metric in metrics.items()}
