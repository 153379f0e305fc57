"""The stages in which the tiny vision-language model is trained."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

Lesson = Literal["objects", "caption", "question"]


class Turn(NamedTuple):
    """What one step is about: the stage, what is trained, and whether the words see the images."""

    stage: int
    lesson: Lesson
    blind: bool


class Stages:
    r"""Four stages one after the other, each with its own half cosine of the learning rate.

    ===== =====================================================================================
    stage what is trained
    ===== =====================================================================================
    0     the encoder: which objects of which colours are on unbiased images
    1     the decoder on texts alone, captions and questions in turn
    2     the decoder on images and texts, captions and questions in turn
    3     the same with one batch of captions and then three of questions
    ===== =====================================================================================

    .. math:: \text{share of the learning rate} = \tfrac12 (1 + \cos \pi \tfrac{t}{T}) \text{ at step } t \text{ of the } T
        \text{ of a stage}

    Args:
        steps: steps of each stage.

    Raises:
        ValueError: if these are not four whole numbers, none negative and not all zero.
    """

    def __init__(self, steps: Sequence[int]) -> None:
        if len(steps) != 4 or min(steps) < 0 or sum(steps) == 0:
            raise ValueError(f"stage_steps={list(steps)} must be the numbers of steps of four stages, not all 0")
        self.steps = tuple(steps)

    @property
    def total(self) -> int:
        """Steps of all stages."""
        return sum(self.steps)

    def turn(self, step: int) -> Turn:
        """Return what the step with this number, from 0, is about; after the last stage it goes on."""
        stage, within = self._place(step)
        if stage == 0:
            return Turn(0, "objects", False)
        period = 4 if stage == 3 else 2
        return Turn(stage, "question" if within % period else "caption", stage == 1)

    def share(self, step: int) -> float:
        """Return the share of the learning rate at a step; 0 after the last stage."""
        if step >= self.total:
            return 0.0
        stage, within = self._place(step)
        return (1 + math.cos(math.pi * within / self.steps[stage])) / 2

    def _place(self, step: int) -> tuple[int, int]:
        """Return the stage of a step and its number in it."""
        for stage, steps in enumerate(self.steps[:-1]):
            if step < steps:
                return stage, step
            step -= steps
        return 3, step
