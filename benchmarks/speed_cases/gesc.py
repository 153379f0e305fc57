"""A layer of GESC beside its plain formulation and beside PyG's attention layers, forward and backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gesc_layers import CHANNELS, HEADS, attention_step, block_model, gesc_step, squirrel
from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, measure

Graph = Callable[[], tuple[Any, int]]
SQUIRREL = "Squirrel, 402 000 edges"
GROWING: dict[str, Graph] = {
    f"Gauge-SBM, {20 * nodes:,} edges".replace(",", " "): partial(block_model, nodes) for nodes in (500, 5_000, 50_000)
}
SMALL = dict(list(GROWING.items())[:2])
PYG = installed_version("torch-geometric")


def beside_reference(graph: Graph, pairs: int) -> PairedTimes:
    edges = graph()
    return measure(gesc_step(edges, "fused"), gesc_step(edges, "reference"), pairs, warm_up=1)


def beside_attention(graph: Graph, name: str, pairs: int) -> PairedTimes:
    edges = graph()
    return measure(gesc_step(edges, "fused"), attention_step(edges, name), pairs, warm_up=1)


CASES = (
    *(
        Case(f"layer, {name} ({HEADS} heads of {CHANNELS})", "gather, then multiply", "", partial(beside_reference, graph), 5)
        for name, graph in {SQUIRREL: squirrel, **SMALL}.items()
    ),
    *(
        Case(f"layer, {name} ({HEADS} heads of {CHANNELS})", peer, PYG, partial(beside_attention, graph, peer), 7)
        for name, graph in {SQUIRREL: squirrel, **GROWING}.items()
        for peer in ("GATConv", "FAConv")
    ),
)
