"""The score of a benchmark by the name that ``BenchmarkDataModule`` gives it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.amber_discriminative import AMBERDiscriminative
from lightning_modules.tlvs.benchmarks.amber_generative import AMBERGenerative
from lightning_modules.tlvs.benchmarks.chair import CHAIR
from lightning_modules.tlvs.benchmarks.coco_objects import coco_objects
from lightning_modules.tlvs.benchmarks.hallusion_bench import HallusionBench
from lightning_modules.tlvs.benchmarks.hallusion_judges import rule_judge
from lightning_modules.tlvs.benchmarks.lexicon import Lexicon
from lightning_modules.tlvs.benchmarks.mmhal import MMHal
from lightning_modules.tlvs.benchmarks.pope import POPE


def benchmark_metric(
    name: str,
    folder: str | Path,
    parser: Literal["official", "vista", "vcd"] = "official",
    judge: Callable[..., str] | None = None,
    synonyms: str | Path | None = None,
    similarity_fn: Callable[[str, str], float] | None = None,
) -> Metric:
    """Build the metric of a benchmark, in the official setting.

    Args:
        name: ``pope_…``, ``amber_generative``, ``amber_…`` for the discriminative part, ``hallusionbench``, ``mmhal`` or ``chair``.
        folder: folder of its annotation files (``benchmark_folder`` of the data module).
        parser: how POPE's answers are read.
        judge: of HallusionBench, by default rules, and of MMHal, which needs one.
        synonyms: CHAIR's table of synonyms, by default ``synonyms.txt`` in the folder.
        similarity_fn: similarity of two words for AMBER's generative part.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the name is unknown, or MMHal has no judge.
    """
    folder = Path(folder).expanduser()
    build: dict[str, Callable[[], Metric]] = {
        "pope": lambda: POPE(parser),
        "amber": lambda: AMBERDiscriminative(),
        "amber_generative": lambda: AMBERGenerative.from_folder(folder, similarity_fn=similarity_fn),
        "hallusionbench": lambda: HallusionBench(_rows(folder / "HallusionBench.json"), judge or rule_judge),
        "mmhal": lambda: MMHal(judge),
        "chair": lambda: _chair(folder, synonyms),
    }
    kind = name if name in build else name.split("_")[0]
    if kind not in build:
        raise ValueError(f"benchmark {name!r} is unknown, use one of {', '.join(build)}")
    return build[kind]()


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: take it from github.com/tianyi-lab/HallusionBench")
    return json.loads(path.read_text(encoding="utf-8"))


def _chair(folder: Path, synonyms: str | Path | None) -> CHAIR:
    lexicon = Lexicon.read(synonyms or folder / "synonyms.txt")
    return CHAIR(lexicon, coco_objects(folder / "instances_val2014.json", folder / "captions_val2014.json", lexicon))
