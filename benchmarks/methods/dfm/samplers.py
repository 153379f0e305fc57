"""Names of the samplers and of the sources, the same in all experiments."""

SAMPLERS = {
    "tau_leaping": "tau-leaping, ordinal",
    "tau_categorical": "tau-leaping, categorical",
    "euler": "Euler",
    "tc": "TC",
    "lc": "LC",
    "lc_4": "LC(4)",
    "lc_8": "LC(8)",
    "theta_rk2": "θ-RK2",
    "theta_trap": "θ-trapezoid",
}
SOURCES = {"mask": "masks", "uniform": "uniform noise"}
COST = (
    "LC, θ-RK2 and θ-trapezoid make two calls a step, so they take half the steps; LC makes the second one for the samples that "
    "jumped alone, and its evaluations of a sample are counted. The last draw of tokens that are still masked is not counted: all "
    "samplers have it."
)


def titles(*samplers: str) -> dict[str, str]:
    """Return titles of ``<source>_<sampler>``."""
    return {f"{source}_{name}": f"{kind}: {SAMPLERS[name]}" for source, kind in SOURCES.items() for name in samplers}
