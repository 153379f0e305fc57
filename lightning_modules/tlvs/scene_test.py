"""The test that all models of scenes take: captions judged by CHAIR, and yes/no questions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryAccuracy

from lightning_modules.tlvs.scene_captions import CaptionGrammar, SceneHallucination, objects_there

Batch = dict[str, Tensor]


class SceneTest(LightningModule, ABC):
    """A module that is tested on scenes; a subclass says how images are described and questions answered.

    A test batch is one of captions, which are generated and judged by CHAIR, or one of questions (those have ``answer``), of which
    accuracy and the share of yes are logged: yes if its logit is above that of no.

    Args:
        words: vocabulary in the order of its ids.
        object_words: names of objects in the order of their numbers.
        colour_words: names of colours in the order of their numbers.
        test_suites: names of further test sets, in the order of their loaders.

    Raises:
        ValueError: if the vocabulary is unknown.
    """

    def __init__(
        self,
        words: Sequence[str] | None,
        object_words: Sequence[str] | None,
        colour_words: Sequence[str] | None,
        test_suites: Sequence[str] | None,
    ) -> None:
        super().__init__()
        if words is None or object_words is None or colour_words is None:
            raise ValueError(f"{type(self).__name__} needs words, object_words and colour_words when its data do not tell them")
        self.caption_id, self.yes_id, self.no_id = (list(words).index(name) for name in ("<cap>", "yes", "no"))
        self.grammar = CaptionGrammar(words, object_words, colour_words)
        self.test_prefixes = ["test/", *(f"test/{suite}/" for suite in test_suites or ())]
        self.hallucination = nn.ModuleList(SceneHallucination() for _ in self.test_prefixes)
        self.answers = nn.ModuleList(BinaryAccuracy() for _ in self.test_prefixes)
        self.yes = nn.ModuleList(MeanMetric() for _ in self.test_prefixes)

    @abstractmethod
    def describe(self, batch: Batch) -> Tensor:
        """Return a caption of each image, words ``[B, T]`` without the prompt."""

    @abstractmethod
    def answer_logits(self, batch: Batch) -> Tensor:
        """Return the logits of the word that answers each question, ``[B, V]``."""

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """Return ``generated``, words of captions ``[B, T]``, or ``yes``, answers ``[B]``, and ``outcomes`` of each sample.

        Outcomes of a caption are the numbers of objects that are ``named``, of those that are ``there``, and of named ones that are
        there, ``hit``, or not, ``wrong``; of a question whether the answer is ``right``, and 1 for each that was ``asked``.
        """
        prefix = self.test_prefixes[dataloader_idx]
        if "answer" in batch:
            yes_B = self.says_yes(batch)
            accuracy, share = self.answers[dataloader_idx], self.yes[dataloader_idx]
            cast(BinaryAccuracy, accuracy).update(yes_B, batch["answer"])
            cast(MeanMetric, share).update(yes_B.float())
            size = len(yes_B)
            self.log(f"{prefix}accuracy", cast(BinaryAccuracy, accuracy), add_dataloader_idx=False, batch_size=size)
            self.log(f"{prefix}yes", cast(MeanMetric, share), add_dataloader_idx=False, batch_size=size)
            right_B = yes_B == batch["answer"].bool()
            return {"yes": yes_B, "outcomes": {"right": right_B, "asked": torch.ones_like(right_B)}}
        generated_BT = self.describe(batch)
        named_BK, malformed_B = self.grammar(generated_BT)
        there_BK = objects_there(batch["objects"], named_BK.shape[1])
        cast(SceneHallucination, self.hallucination[dataloader_idx]).update(named_BK, there_BK, malformed_B)
        found = {"named": named_BK, "there": there_BK, "wrong": named_BK & ~there_BK, "hit": named_BK & there_BK}
        return {"generated": generated_BT, "outcomes": {name: objects_BK.sum(dim=1) for name, objects_BK in found.items()}}

    def on_test_epoch_end(self) -> None:
        """Log the results of the suites with captions."""
        for prefix, module in zip(self.test_prefixes, self.hallucination, strict=True):
            metric = cast(SceneHallucination, module)
            if metric.update_called:
                self.log_dict({f"{prefix}{name}": value for name, value in metric.compute().items()})
                metric.reset()

    def predict_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        """Return a caption of each image, ``[B, T]``."""
        return self.describe(batch)

    def says_yes(self, batch: Batch) -> Tensor:
        """Return whether each question is answered with yes, bool ``[B]``."""
        logits_BV = self.answer_logits(batch)
        return logits_BV[:, self.yes_id] > logits_BV[:, self.no_id]

    def caption_prompts(self, batch: Batch) -> Batch:
        """Return the batch with the prompt of a caption in the place of its text."""
        prompt_B1 = torch.full_like(batch["index"], self.caption_id).unsqueeze(1)
        return batch | {"input_ids": prompt_B1, "prompt_length": torch.ones_like(batch["index"])}
