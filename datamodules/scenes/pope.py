"""POPE's questions: objects that are there, each followed by one that is not but that a model may expect.

Legend: N images, K objects, Q = 3 pairs of questions an image.
"""

from typing import Literal, get_args

import numpy as np

Negatives = Literal["random", "popular", "adversarial"]
PAIRS = 3


def pope_questions(present: np.ndarray, negatives: Negatives, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Ask about 3 objects of each image, and after each about an object that it lacks.

    =========== ==========================================================================================
    negatives   the object that is not there
    =========== ==========================================================================================
    random      any, all alike
    popular     that in most of the N images
    adversarial that in most of the images that also have the object asked about just before
    =========== ==========================================================================================

    Objects equally frequent come in the order of the vocabulary. No image is asked about an object twice. An image with fewer than
    3 objects, or that lacks fewer than 3, gets no question.

    Args:
        present: which objects each image has, bool ``[N, K]``; an object that no image has is never asked about.
        negatives: see above.
        seed: seed of the random choices; each image has its own, so that they do not depend on the other images.

    Returns:
        The image, the object and the right answer of each question, int64, int64 and bool ``[6 I]`` with I images asked about.

    Raises:
        ValueError: if the kind is unknown, or no image can be asked about.

    Source: Evaluating Object Hallucination in Large Vision-Language Models (arXiv 2305.10355); its code takes the positive objects
    in the order of the annotation, here they are drawn.
    """
    if negatives not in get_args(Negatives):
        raise ValueError(f"negatives={negatives!r} is unknown, use one of {', '.join(get_args(Negatives))}")
    known = present.any(axis=0)
    counts = present.sum(axis=1)
    (images,) = np.nonzero((counts >= PAIRS) & (known.sum() - counts >= PAIRS))
    if not len(images):
        raise ValueError(
            f"POPE asks about {PAIRS} objects that are there and {PAIRS} that are not: no image of {len(present)} has these"
        )
    together = present.T.astype(np.int64) @ present  # [K, K]; the diagonal counts the images of an object
    chances = np.stack([np.random.default_rng((seed, int(image))).random((2, present.shape[1])) for image in images])
    there = present[images]
    positives = np.argsort(np.where(there, chances[:, 0], np.inf), axis=1)[:, :PAIRS]
    free = known & ~there
    rows = np.arange(len(images))
    asked = np.empty((len(images), PAIRS, 2), dtype=np.int64)
    for pair in range(PAIRS):
        liking = {
            "random": chances[:, 1],
            "popular": np.broadcast_to(together.diagonal(), free.shape),
            "adversarial": together[positives[:, pair]],
        }[negatives]
        negative = np.where(free, liking, -1.0).argmax(axis=1)
        free[rows, negative] = False
        asked[:, pair] = np.stack([positives[:, pair], negative], axis=1)
    answers = np.broadcast_to([True, False], asked.shape)
    return np.repeat(images, 2 * PAIRS), asked.reshape(-1), answers.reshape(-1).copy()
