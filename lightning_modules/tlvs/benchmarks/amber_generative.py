"""AMBER, generative part: objects in free descriptions."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts
from lightning_modules.tlvs.benchmarks.words import rule_nouns

SUMS = (
    "kept_nouns",
    "hallucinated_nouns",
    "true_objects",
    "covered_objects",
    "lures",
    "lures_hit",
    "responses",
    "hallucinated_responses",
)
TREE = """vlm/amber/
    relation.json
    safe_words.txt"""


class AMBERGenerative(Metric):
    r"""CHAIR, Cover, Hal and Cog, in percent, as AMBER's script counts them.

    Nouns of a response are kept if they are in the vocabulary, which is all words of ``relation``. A kept noun is

    - neutral if it is one of ``safe_words``,
    - else true if it equals an object of the image or an associate of one, and this object is covered,
    - else hallucinated; if it equals a lure or an associate of one, this lure is hit. With ``similarity_fn``, the first lure
      word that is similar enough is hit too, and a noun that is similar enough to a true word is true after all.

    .. math::
        \text{CHAIR} = \frac{\#\text{hallucinated}}{\#\text{kept}}, \quad
        \text{Cover} = \frac{\#\text{covered objects}}{\#\text{objects}}, \quad
        \text{Hal} = \frac{\#\text{responses with a hallucinated noun}}{\#\text{responses}}, \quad
        \text{Cog} = \frac{\#\text{lures hit}}{\#\text{lures}}

    As in the script: neutral nouns count in the denominator of CHAIR; a noun covers only the first word that it equals,
    associates (in the order of their objects) before objects; denominators start at 0.001; nothing is made lower case, so that a
    noun that begins a sentence is not found. The paper divides Cog by mentions instead. An empty list of objects or lures adds
    nothing, where the script would count the wrong list.

    **Comparable with published numbers** only with ``nouns=wordnet_nouns()`` and ``similarity_fn`` of spaCy's
    ``en_core_web_lg``; ``setting`` says what was used, and ``with_similarity`` is part of the result.

    Args:
        relation: associates of each object (AMBER's ``relation.json``).
        safe_words: nouns that never count as hallucinated.
        nouns: finds the nouns of a text, in the singular; the default takes every word and makes its singular by rules.
        similarity_fn: similarity of two words, for example ``lambda a, b: nlp(a).similarity(nlp(b))``; None compares words only.
        threshold: a pair is similar if its similarity is larger.
        rounded: round to one decimal, as the script prints.

    Raises:
        ValueError: if ``relation`` is empty.

    Source: Wang et al. 2023 (arXiv 2311.07397) and junyangwang0410/AMBER, ``inference.py``.
    """

    batch_keys = ("truth", "lures")
    full_state_update = False
    higher_is_better = False

    def __init__(
        self,
        relation: Mapping[str, Sequence[str]],
        safe_words: Iterable[str] = (),
        nouns: Callable[[str], list[str]] = rule_nouns,
        similarity_fn: Callable[[str, str], float] | None = None,
        threshold: float = 0.8,
        rounded: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not relation:
            raise ValueError("AMBER needs the table of associates in relation.json, this one is empty")
        self.relation = {word: list(associates) for word, associates in relation.items()}
        self.vocabulary = self.relation.keys() | {word for associates in self.relation.values() for word in associates}
        self.safe_words = frozenset(safe_words)
        self.nouns, self.similarity_fn, self.threshold, self.rounded = nouns, similarity_fn, threshold, rounded
        for name in SUMS:
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    @classmethod
    def from_folder(cls, folder: str | Path, **kwargs: Any) -> "AMBERGenerative":
        """Read ``relation.json`` and ``safe_words.txt`` of AMBER's ``data`` folder.

        Raises:
            FileNotFoundError: if one is missing; shows both.
        """
        folder = Path(folder).expanduser()
        relation, safe = folder / "relation.json", folder / "safe_words.txt"
        for file in (relation, safe):
            if not file.is_file():
                raise FileNotFoundError(f"{file} is missing; AMBER's generative part needs\n{TREE}")
        words = safe.read_text(encoding="utf-8").split("\n")
        return cls(json.loads(relation.read_text(encoding="utf-8")), [word for word in words if word], **kwargs)

    @property
    def setting(self) -> str:
        """How nouns were found and whether similar words counted, to be shown beside the numbers."""
        similarity = f"similarity > {self.threshold}" if self.similarity_fn else "no word similarity"
        return f"nouns by {getattr(self.nouns, '__qualname__', type(self.nouns).__name__)}, {similarity}"

    def update(self, responses: Sequence[str], truth: Sequence[Sequence[str]], lures: Sequence[Sequence[str]]) -> None:
        """Add a batch.

        Args:
            responses: descriptions.
            truth: annotated objects of each image, words of ``relation``.
            lures: annotated objects that people expect there and that are not there, words of ``relation``.

        Raises:
            ValueError: if the columns have different lengths, or an annotated word is not in ``relation``.
        """
        check_texts(responses, "responses")
        check_same_length(responses=responses, truth=truth, lures=lures)
        totals = [[0] * len(SUMS)]
        totals.extend(self._count(*row) for row in zip(responses, truth, lures, strict=True))
        for name, total in zip(SUMS, torch.tensor(totals, device=self.device).sum(dim=0), strict=True):
            setattr(self, name, getattr(self, name) + total)

    def compute(self) -> dict[str, Tensor]:
        """Return ``chair``, ``cover``, ``hal`` and ``cog`` in percent, and ``with_similarity``, 1 or 0."""
        nouns, hallucinated, objects, covered, lures, hit, responses, bad = (getattr(self, name).double() for name in SUMS)
        percent = {
            "chair": hallucinated / (nouns + 0.001),
            "cover": covered / (objects + 0.001),
            "hal": 1 - (responses - bad) / (responses + 0.001),
            "cog": hit / (lures + 0.001),
        }
        scores = {name: (100 * value).round(decimals=1) if self.rounded else 100 * value for name, value in percent.items()}
        with_similarity = torch.tensor(float(self.similarity_fn is not None), device=self.device)
        return {name: value.float() for name, value in scores.items()} | {"with_similarity": with_similarity}

    def _count(self, response: str, truth: Sequence[str], lures: Sequence[str]) -> list[int]:
        true_words, lure_words = self._with_associates(truth), self._with_associates(lures)
        covered: set[int] = set()
        hit: set[int] = set()
        kept = [noun for noun in self.nouns(response) if noun in self.vocabulary]
        hallucinated = 0
        for noun in kept:
            if noun in self.safe_words:
                continue
            if equal := _first_equal(noun, true_words):
                covered.update(equal)
                continue
            hit.update(_first_equal(noun, lure_words), self._first_similar(noun, lure_words))
            similar = self._first_similar(noun, true_words)
            covered.update(similar)
            hallucinated += not similar
        return [len(kept), hallucinated, len(truth), len(covered), len(lures), len(hit), 1, int(hallucinated > 0)]

    def _with_associates(self, objects: Sequence[str]) -> list[tuple[str, int]]:
        """Return the associates of all objects, then the objects, each with the number of the object."""
        for word in objects:
            if word not in self.relation:
                raise ValueError(
                    f"the annotated object {word!r} is not in relation.json: annotations and relation must be of one version"
                )
        associates = [(word, i) for i, name in enumerate(objects) for word in self.relation[name]]
        return associates + [(name, i) for i, name in enumerate(objects)]

    def _first_similar(self, noun: str, words: list[tuple[str, int]]) -> list[int]:
        if self.similarity_fn is None:
            return []
        return next(([at] for word, at in words if self.similarity_fn(noun, word) > self.threshold), [])


def _first_equal(noun: str, words: list[tuple[str, int]]) -> list[int]:
    return next(([at] for word, at in words if word == noun), [])


def amber_score(chair: float | Tensor, f1: float | Tensor) -> float | Tensor:
    """Return AMBER's joint score ``(100 - CHAIR + F1) / 2`` of the generative and the discriminative part, all in percent."""
    return (100 - chair + f1) / 2
