"""How much memory a layer needs for a forward and backward pass."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.allocated_memory import allocated_peak
from benchmarks.gesc_layers import attention_step, block_model, gesc_step, squirrel
from benchmarks.timing import Timed

GRAPHS: Mapping[str, Callable[[], tuple[Any, int]]] = {
    "squirrel": squirrel,
    "edges_10k": partial(block_model, 500),
    "edges_100k": partial(block_model, 5_000),
    "edges_1m": partial(block_model, 50_000),
}
LAYERS: Mapping[str, Callable[[tuple[Any, int]], Timed]] = {
    "fused": partial(gesc_step, impl="fused"),
    "reference": partial(gesc_step, impl="reference"),
    "gat": partial(attention_step, name="GATConv"),
    "fa": partial(attention_step, name="FAConv"),
}
TOO_LARGE = {("reference", "edges_1m")}
"""More than 20 GB."""


def layer_memory(layer: str, seed: int) -> Mapping[str, float]:
    """Return the peak memory in MB beyond parameters, states and edges, by graph.

    Args:
        layer: a key of ``LAYERS``.
        seed: of no consequence.
    """
    peaks = {}
    for name, graph in GRAPHS.items():
        if (layer, name) not in TOO_LARGE:
            step = LAYERS[layer](graph())
            step()
            peaks[name] = allocated_peak(step) / 1e6
    return peaks
