"""What captions of scenes name, whether that is there, and whether they are sentences at all.

Legend: B captions, T words of a response, V vocabulary, K objects.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchmetrics import Metric


class CaptionGrammar(nn.Module):
    """Read ``there is a star that is red and a cross that is blue . <eos>``.

    Args:
        words: the vocabulary in the order of its ids.
        object_words: names of objects in the order of their numbers.
        colour_words: names of colours.

    Raises:
        ValueError: if a word that captions need is not in the vocabulary.
    """

    transitions: Tensor
    object_ids: Tensor

    def __init__(self, words: Sequence[str], object_words: Sequence[str], colour_words: Sequence[str]) -> None:
        super().__init__()
        needed = ["<pad>", "<eos>", "there", "is", "a", "that", "and", ".", *object_words, *colour_words]
        if missing := [word for word in needed if word not in words]:
            raise ValueError(f"the vocabulary lacks {missing[0]!r}, which captions need")
        steps = [
            *((0, "there", 1), (1, "is", 2), (2, "a", 3), (4, "that", 5), (5, "is", 6)),
            *((7, "and", 2), (7, ".", 8), (8, "<eos>", 9), (9, "<pad>", 9)),
            *((3, name, 4) for name in object_words),
            *((6, name, 7) for name in colour_words),
        ]
        self.accepted, rejected = 9, 10
        transitions = torch.full((11, len(words)), rejected)
        for state, word, then in steps:
            transitions[state, list(words).index(word)] = then
        self.register_buffer("transitions", transitions, persistent=False)
        self.register_buffer("object_ids", torch.tensor([list(words).index(name) for name in object_words]), persistent=False)
        self.eos_id = list(words).index("<eos>")

    def forward(self, response_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return which objects a caption names before its end, bool ``[B, K]``, and whether it is malformed, bool ``[B]``.

        It is malformed if it is no sentence of the grammar, has no end, or names an object twice.
        """
        state_B = torch.zeros_like(response_BT[:, 0])
        for word_B in response_BT.unbind(dim=1):
            state_B = self.transitions[state_B, word_B]
        before_end_BT = ((response_BT == self.eos_id).cumsum(dim=1) == 0).unsqueeze(-1)
        count_BK = ((response_BT.unsqueeze(-1) == self.object_ids) & before_end_BT).sum(dim=1)
        return count_BK > 0, (state_B != self.accepted) | (count_BK > 1).any(dim=1)


class SceneHallucination(Metric):
    r"""CHAIR and its company on sets of objects: M named and G there, over all captions.

    ============ ========================================================================
    result
    ============ ========================================================================
    chair_i      :math:`\sum |M \setminus G| / \sum |M|`
    chair_s      share of captions with :math:`M \setminus G` not empty
    recall       :math:`\sum |M \cap G| / \sum |G|`
    f1           harmonic mean of 1 - chair_i and recall
    malformed    share of captions that are malformed
    objects      mean :math:`|M|`
    ============ ========================================================================

    A ratio whose denominator is 0 is 0.
    """

    sums: Tensor
    higher_is_better = None
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(7, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, named_BK: Tensor, there_BK: Tensor, malformed_B: Tensor) -> None:
        """Add captions.

        Args:
            named_BK: objects that each names, bool ``[B, K]``.
            there_BK: objects that are there, bool ``[B, K]``.
            malformed_B: bool ``[B]``.
        """
        wrong_BK = named_BK & ~there_BK
        self.sums += torch.stack(
            [
                wrong_BK.sum(),
                named_BK.sum(),
                wrong_BK.any(dim=1).sum(),
                (named_BK & there_BK).sum(),
                there_BK.sum(),
                malformed_B.sum(),
                torch.ones_like(malformed_B).sum(),
            ]
        ).double()

    def compute(self) -> dict[str, Tensor]:
        wrong, named, captions_with_wrong, hit, there, malformed, captions = self.sums.unbind()
        chair_i, recall = _ratio(wrong, named), _ratio(hit, there)
        precision = _ratio(hit, named)
        results = {
            "chair_i": chair_i,
            "chair_s": _ratio(captions_with_wrong, captions),
            "recall": recall,
            "f1": _ratio(2 * precision * recall, precision + recall),
            "malformed": _ratio(malformed, captions),
            "objects": _ratio(named, captions),
        }
        return {name: value.float() for name, value in results.items()}


def objects_there(objects_BC: Tensor, number: int) -> Tensor:
    """Return which of K objects are in some cell, bool ``[B, K]``, from their numbers ``[B, C]`` (-1: none)."""
    return (objects_BC.unsqueeze(-1) == torch.arange(number, device=objects_BC.device)).any(dim=1)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    return torch.where(denominator > 0, numerator / denominator.clamp_min(torch.finfo(denominator.dtype).tiny), 0.0)
