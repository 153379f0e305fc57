"""Which nodes are for training, validation and the test."""

import numpy as np

from datamodules.graphs.graph_arrays import GraphArrays, Masks, check_masks


def choose_split(
    graph: GraphArrays, split: int | str, name: str, train_frac: float = 0.48, val_frac: float = 0.32, seed: int = 0
) -> Masks:
    """Return one of the file's splits, the public one, or a random one.

    Args:
        graph: the graph.
        split: number of a split of the files, ``public`` or ``random``.
        name: what the graph is called in an error.
        train_frac: fraction of training nodes of a random split.
        val_frac: its fraction of validation nodes; the rest is the test.
        seed: seed of a random split.

    Raises:
        ValueError: if there is no such split (names those that there are), or its masks overlap or are empty.
    """
    if split == "random":
        masks = random_split(len(graph.labels), train_frac, val_frac, seed)
    elif split == "public" and graph.public:
        masks = graph.public
    elif isinstance(split, int) and 0 <= split < len(graph.splits):
        masks = graph.splits[split]
    else:
        numbers = [f"0 to {len(graph.splits) - 1}"] if graph.splits else []
        valid = ", ".join([*numbers, *(["public"] if graph.public else []), "random"])
        raise ValueError(f"split={split!r} is not a split of {name}: use {valid}")
    check_masks(masks, len(graph.labels), f"split {split} of {name}")
    return masks


def random_split(nodes: int, train_frac: float, val_frac: float, seed: int | np.random.Generator) -> Masks:
    """Draw a split with ``round(train_frac * nodes)`` training and ``round(val_frac * nodes)`` validation nodes.

    Raises:
        ValueError: if a fraction is not positive or nothing is left for the test.
    """
    if not (train_frac > 0 and val_frac > 0 and train_frac + val_frac < 1):
        raise ValueError(f"train_frac={train_frac:g} and val_frac={val_frac:g} must be positive and leave something for the test")
    order = np.random.default_rng(seed).permutation(nodes)
    ends = [round(train_frac * nodes), round(train_frac * nodes) + round(val_frac * nodes)]
    masks = np.zeros((3, nodes), dtype=bool)
    for mask, members in zip(masks, np.split(order, ends), strict=True):
        mask[members] = True
    return Masks(*masks)
