"""What a layer costs in memory."""

from benchmarks.calculations.layer_memory import layer_memory
from benchmarks.experiments import Calculation, Metric
from benchmarks.gesc_layers import CHANNELS, HEADS

MEMORY = Calculation(
    name="layer_memory",
    title="Memory of a layer",
    description=(
        f"Peak of what a forward and a backward pass allocate on a CPU, in MB; {HEADS} heads of {CHANNELS} features, complex for "
        "GESC and real for PyG's layers (FAConv has one head). Graphs: Squirrel with 402 000 edges, and Gauge-SBM of growing size."
    ),
    titles={
        "fused": "GESC, fused",
        "reference": "GESC, gathers before it multiplies",
        "gat": "GATConv",
        "fa": "FAConv",
    },
    metrics=(
        Metric("squirrel", "Squirrel"),
        Metric("edges_10k", "10 000 edges"),
        Metric("edges_100k", "100 000 edges"),
        Metric("edges_1m", "1 000 000 edges"),
    ),
    compute=layer_memory,
)
