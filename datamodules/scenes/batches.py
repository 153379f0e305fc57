"""Batches of scenes with their texts.

Legend: B samples of a rank's share of a batch, T words, C cells.

A batch holds ``pixels`` float32 ``[B, 3, 32, 32]``, ``input_ids`` int64 ``[B, T]`` with ``<pad>`` on the right, ``prompt_length``
int64 ``[B]``, ``no_image`` bool ``[B]`` (True: the text must do without the image), ``objects`` and ``colours`` int64 ``[B, C]``
(number in the vocabulary or -1) and ``index`` int64 ``[B]`` (the image); questions also ``answer`` bool ``[B]`` (yes).
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchDataset, BatchKey
from datamodules.scenes.text import CAPTION_PROMPT, QUESTION_PROMPT, QUESTIONS, captions
from datamodules.scenes.world import Scenes, from_bytes

NO_IMAGE, ASKED = 1, 2  # random numbers of a batch that have nothing to do with each other


def image_batch(scenes: Scenes, images: np.ndarray) -> dict[str, Tensor]:
    """Return what a batch tells about images of the given numbers."""
    return {
        "pixels": torch.from_numpy(from_bytes(scenes.pixels[images])),
        "objects": torch.from_numpy(scenes.objects[images]),
        "colours": torch.from_numpy(scenes.colours[images]),
        "index": torch.from_numpy(images),
    }


def text_batch(rows: np.ndarray, prompt_length: int, no_image: np.ndarray) -> dict[str, Tensor]:
    """Return what a batch tells about texts, padded rows of ids that all have prompts of one length."""
    return {
        "input_ids": torch.from_numpy(rows.astype(np.int64)),
        "prompt_length": torch.full((len(rows),), prompt_length),
        "no_image": torch.from_numpy(no_image),
    }


def hidden_images(key: BatchKey, probability: float, seed: int) -> np.ndarray:
    """Draw which images of this rank's share are withheld, anew in each epoch, bool ``[B]``."""
    return (np.random.default_rng((seed, NO_IMAGE, key.epoch, key.batch)).random(len(key.indices)) < probability)[key.rows]


class CaptionedScenes:
    """Scenes and their captions; the prompt is ``<cap>``.

    Args:
        scenes: the scenes.
        null_image_prob: share of samples without image.
        seed: seed of these.
    """

    def __init__(self, scenes: Scenes, null_image_prob: float = 0.0, seed: int = 0) -> None:
        self.scenes, self.null_image_prob, self.seed = scenes, null_image_prob, seed
        self.rows, self.lengths = captions(scenes)

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        longest = self.lengths[key.indices].max()
        images = key.local_indices
        no_image = hidden_images(key, self.null_image_prob, self.seed)
        return image_batch(self.scenes, images) | text_batch(self.rows[images, :longest], CAPTION_PROMPT, no_image)


class FixedQuestions:
    """Scenes and questions about them that never change; the prompt ends with the question mark.

    Args:
        scenes: the scenes.
        images: the scene of each question.
        asked: the object that it asks about.
        answers: whether that is there.
    """

    def __init__(self, scenes: Scenes, images: np.ndarray, asked: np.ndarray, answers: np.ndarray) -> None:
        self.scenes, self.images, self.asked, self.answers = scenes, images, asked, answers

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        chosen = key.local_indices
        no_image = np.zeros(len(chosen), dtype=bool)
        return question_batch(self.scenes, self.images[chosen], self.asked[chosen], self.answers[chosen], no_image)


class FreshQuestions:
    """Scenes and, in each epoch, a new question about each: with equal chances about an object that is there or one that is not.

    All objects of either kind are alike. A scene without objects is asked about one that is not there.

    Args:
        scenes: the scenes.
        askable: objects of the vocabulary that are asked about.
        null_image_prob: share of samples without image.
        seed: seed of the questions.
    """

    def __init__(self, scenes: Scenes, askable: np.ndarray, null_image_prob: float = 0.0, seed: int = 0) -> None:
        self.scenes, self.askable, self.null_image_prob, self.seed = scenes, askable, null_image_prob, seed
        self.present = scenes.present[:, askable]

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        random = np.random.default_rng((self.seed, ASKED, key.epoch, key.batch))
        asked, answers = draw_questions(self.present[key.indices], random)
        images, asked, answers = key.local_indices, self.askable[asked[key.rows]], answers[key.rows]
        return question_batch(self.scenes, images, asked, answers, hidden_images(key, self.null_image_prob, self.seed))


def draw_questions(present: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw an object for each scene, and return it and whether it is there; see :class:`FreshQuestions`.

    Args:
        present: which objects are there, bool ``[N, K]``.
        random: where random numbers come from.
    """
    wanted = random.random(len(present)) < 0.5
    wanted = np.where(present.all(axis=1), True, wanted & present.any(axis=1))
    chances = random.random(present.shape)
    return np.where(present == wanted[:, None], chances, -1.0).argmax(axis=1), wanted


def question_batch(
    scenes: Scenes, images: np.ndarray, asked: np.ndarray, answers: np.ndarray, no_image: np.ndarray
) -> dict[str, Tensor]:
    """Return the batch of questions about the given images."""
    rows = QUESTIONS[asked, answers.astype(np.int64)]
    return (
        image_batch(scenes, images)
        | text_batch(rows, QUESTION_PROMPT, no_image)
        | {"asked": torch.from_numpy(asked), "answer": torch.from_numpy(answers)}
    )


class RandomImages:
    """Scenes drawn with replacement, without texts, whatever samples a batch asks for.

    Args:
        scenes: the scenes.
        seed: seed of the choice.
    """

    def __init__(self, scenes: Scenes, seed: int) -> None:
        self.scenes, self.seed = scenes, seed

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        return image_batch(self.scenes, key.generator(self.seed).integers(len(self), size=len(key.indices))[key.rows])


class JointBatches:
    """Several data sets side by side: a batch has one batch of each under its name.

    Args:
        parts: data sets; the first says how many samples there are.
    """

    def __init__(self, parts: Mapping[str, BatchDataset]) -> None:
        self.parts = dict(parts)

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def __getitem__(self, key: BatchKey) -> dict[str, dict[str, Tensor]]:
        return {name: part[key] for name, part in self.parts.items()}
