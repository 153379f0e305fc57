"""Scores of hallucination benchmarks as torchmetrics, with the official scripts' parsers and quirks.

What :meth:`update` takes beside the answers is what ``datamodules.BenchmarkDataModule`` puts into its batches under the names in
``batch_keys``: ``metric.update(answers, *(batch[key] for key in metric.batch_keys))``.
"""

from lightning_modules.tlvs.benchmarks.amber_discriminative import AMBERDiscriminative
from lightning_modules.tlvs.benchmarks.amber_generative import AMBERGenerative, amber_score
from lightning_modules.tlvs.benchmarks.by_name import benchmark_metric
from lightning_modules.tlvs.benchmarks.chair import CHAIR
from lightning_modules.tlvs.benchmarks.coco_objects import coco_objects
from lightning_modules.tlvs.benchmarks.hallusion_bench import HallusionBench
from lightning_modules.tlvs.benchmarks.lexicon import Lexicon
from lightning_modules.tlvs.benchmarks.mmhal import MMHal
from lightning_modules.tlvs.benchmarks.pope import POPE

__all__ = [
    "CHAIR",
    "POPE",
    "AMBERDiscriminative",
    "AMBERGenerative",
    "HallusionBench",
    "Lexicon",
    "MMHal",
    "amber_score",
    "benchmark_metric",
    "coco_objects",
]
