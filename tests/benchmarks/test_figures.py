import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from benchmarks.experiments import REPOSITORY, Experiment, load_experiments, method_names
from benchmarks.figures import (
    bar_figure,
    convergence_figure,
    curve,
    growth_figure,
    horizon_figure,
    learning_curve_figure,
    severity_figure,
)
from benchmarks.results import Record
from benchmarks.style import save_figure
from callbacks.figure_style import PALETTE


def record(variant: str, metric: str, seed: int, value: float) -> Record:
    return Record("sudoku", variant, metric, seed, value, 100, 1.0, 10)


RECORDS = [
    record(variant, metric, seed, level + 0.1 * seed)
    for variant, level in (("sheaf", 0.3), ("mpnn", 0.1))
    for metric in ("test/solved", "test/solved_at_2", "test/solved_at_16", "test/cell_accuracy_at_2")
    for seed in (1, 2)
]


def test_a_curve_is_ordered_by_iteration():
    points = curve(RECORDS, "sheaf", "test/solved", plain_at=8)
    assert list(points) == [2, 8, 16]
    assert points[16].mean == pytest.approx(0.45)
    assert points[16].n == 2


def test_horizon_figure_shows_means_and_spread():
    figure = horizon_figure(
        RECORDS, {"sheaf": "Sheaf", "mpnn": "MPNN"}, metrics={"": "test/solved"}, x_label="K", y_label="solved", trained_at=8
    )
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert np.allclose(lines["Sheaf"].get_ydata(), 45.0)
    assert len(axes.collections) == 2
    # standard error of (40, 50): 5
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(40.0), pytest.approx(50.0))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("K", "solved (%)")


def test_convergence_figure_draws_geometric_means():
    records = [record("dual", f"error_at_{k}", seed, 10.0 ** (-k * seed)) for k in (0, 2) for seed in (1, 3)]
    figure = convergence_figure(records, {"dual": "dual"}, metric="error", x_label="k", y_label="error")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert np.allclose(lines["dual"].get_ydata(), [1.0, 1e-4])
    assert len(axes.lines) == 3
    assert axes.get_yscale() == "log"


def test_figures_are_saved_alike_each_time(tmp_path: Path):
    def draw():
        return convergence_figure([record("a", "e_at_1", 1, 0.5)], {"a": "A"}, metric="e", x_label="k", y_label="e")

    for name in ("first.png", "second.png"):
        save_figure(draw, tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
    assert image.imread(tmp_path / "first.png").shape == (570, 900, 4)


def test_palette_has_no_repeats():
    assert len(set(PALETTE)) == len(PALETTE)


@pytest.mark.parametrize("method", method_names())
def test_declared_experiments_can_run(method: str):
    experiments = load_experiments(method)
    for experiment in experiments.values():
        assert len({figure.name for figure in experiment.figures}) == len(experiment.figures)
        if isinstance(experiment, Experiment):
            assert "seed_everything" in experiment.seed_options
            missing = [v.config for v in experiment.variants.values() if not (REPOSITORY / v.config).exists()]
            assert not missing


def test_unknown_methods_are_listed():
    with pytest.raises(ValueError, match="there are some for: .*sheaf_admm"):
        load_experiments("nothing")


def test_the_runner_imports_no_torch():
    code = "import sys, benchmarks.headline as h; h.load_experiments('sheaf_admm'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


def test_horizon_panels_and_a_variant_without_iterations():
    records = [*RECORDS, record("cnn", "test/solved", 1, 0.2), record("sheaf", "test/2x/solved_at_16", 1, 0.7)]
    figure = horizon_figure(
        records,
        {"sheaf": "Sheaf", "cnn": "CNN"},
        metrics={"small": "test/solved", "large": "test/2x/solved"},
        x_label="K",
        y_label="solved",
        trained_at=(2, 4),
        plain_at=8,
    )
    small, large = figure.axes
    lines = {line.get_label(): line for line in small.lines}
    assert lines["Sheaf"].get_xdata().tolist() == [2, 8, 16]
    assert lines["CNN"].get_ydata() == [20.0, 20.0]
    assert [axes.get_title() for axes in figure.axes] == ["small", "large"]
    assert "CNN" not in {line.get_label() for line in large.lines}


def test_severity_figure_has_a_panel_for_each_corruption():
    records = [record("cnn", metric, seed, level * seed) for metric, level in (("a", 0.4), ("b", 0.1)) for seed in (1, 2)]
    panels = {"padding": {0.0: "a", 4.0: "b"}, "noise": {0.0: "a", 0.5: "missing"}}
    figure = severity_figure(records, {"cnn": "CNN"}, panels=panels, y_label="accuracy")
    padding, noise = figure.axes
    assert padding.lines[0].get_xdata().tolist() == [0.0, 4.0]
    assert padding.lines[0].get_ydata() == pytest.approx([60.0, 15.0])
    assert (padding.get_xlabel(), len(noise.lines)) == ("padding", 0)


def test_bars_have_the_length_of_the_mean():
    records = [record(variant, "a", seed, level * seed) for variant, level in (("x", 0.2), ("y", 0.4)) for seed in (1, 2)]
    figure = bar_figure(records, {"x": "X", "y": "Y"}, metrics={"first": "a"}, x_label="solved")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([30.0, 60.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first"]


def test_growth_figure_draws_means_from_zero():
    records = [record("keep", f"peak_at_{k}", seed, k * seed) for k in (5, 10) for seed in (1, 3)]
    (axes,) = growth_figure(records, {"keep": "keep"}, metric="peak", x_label="K", y_label="MiB").axes
    assert axes.lines[0].get_ydata() == pytest.approx([10.0, 20.0])
    assert axes.get_ylim()[0] == 0.0


def test_learning_curves_show_runs_their_mean_and_its_interval():
    records = [record("sac", f"val/return_at_{step}", seed, step * seed) for step in (1000, 2000) for seed in (1, 2, 3)]
    records += [record("two", f"val/return_at_{step}", seed, 5.0) for step in (1000, 2000) for seed in (1, 2)]
    titles = {"sac": "SAC", "none": "NONE", "two": "TWO"}
    figure = learning_curve_figure(records, titles, metric="val/return", x_label="steps", y_label="return")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert lines.keys() == {"SAC", "TWO"}
    assert lines["SAC"].get_xdata().tolist() == [1000, 2000]
    assert lines["SAC"].get_ydata().tolist() == [2000.0, 4000.0]
    assert len(axes.lines) == 3 + 1 + 2 + 1
    # a band from three runs on; of 27 resamples 1 has the mean 1 and 1 the mean 3, more than 2.5 % each
    (band,) = axes.collections
    assert np.allclose(band.get_paths()[0].vertices[:, 1].min(), 1000.0)
    assert np.allclose(band.get_paths()[0].vertices[:, 1].max(), 6000.0)
    assert "95 % bootstrap" in figure.legends[0].get_title().get_text()
