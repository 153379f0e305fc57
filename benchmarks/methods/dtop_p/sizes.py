"""What the models of the paper hold and compute."""

from benchmarks.calculations.paper_sizes import LENGTH, paper_sizes
from benchmarks.experiments import Calculation, Metric

PAPER_SIZES = Calculation(
    name="paper_sizes",
    title="The paper's models",
    description=(
        "Billions of parameters, and of floating-point operations of a forward pass, a token, counted from the configs. Embedding "
        "and head (50 304 tokens, untied) count as parameters, active ones too; the paper says 6.9 and 1.3 for 64E8A. A token "
        f"attends to half of {LENGTH} tokens in the mean. The widths of the smallest and the largest model are not in the paper."
    ),
    titles={
        "64e8a": "64E8A",
        "32e4a": "32E4A",
        "128e16a": "128E16A",
        "0.4b": "64E8A, 0.4 billion active",
        "2.4b": "64E8A, 2.4 billion active",
    },
    metrics=(
        Metric("total", "parameters"),
        Metric("active", "active"),
        Metric("embedding", "embedding and head"),
        Metric("attention", "operations: attention"),
        Metric("router", "router"),
        Metric("experts", "experts"),
        Metric("head", "head"),
        Metric("operations", "all"),
    ),
    compute=paper_sizes,
)
