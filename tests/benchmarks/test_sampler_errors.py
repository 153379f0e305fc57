import numpy as np
import pytest

from benchmarks.calculations import sampler_errors
from benchmarks.calculations.sampler_errors import NARROW, SIGN_CALLS, error_signs
from benchmarks.experiments import Experiment, load_experiments
from benchmarks.methods.f_dpm_solver.figures import calls_figure, error_figure, signed_error_figure
from benchmarks.results import Record


@pytest.fixture(autouse=True)
def coarse_reference(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampler_errors, "REFERENCE_STEPS", 150)


def test_errors_of_ddim_and_f_ddim_are_opposite():
    ddim, f_dpm, mean = (error_signs(name, 1) for name in ("ddim", "f_dpm", "mean"))
    # values of the specification: 200 points, standard deviation 0.35, even logarithms from 10 to 0.05
    assert [f_dpm[f"cosine_at_{calls}"] for calls in SIGN_CALLS] == pytest.approx([-0.973, -0.994, -0.998, -0.9995], abs=4e-3)
    assert (ddim["rmse_at_10"], f_dpm["rmse_at_10"], mean["rmse_at_10"]) == pytest.approx((0.100, 0.066, 0.018), rel=0.1)
    assert ddim["rmse_at_20"] / ddim["rmse_at_40"] == pytest.approx(2, rel=0.05)
    assert mean["rmse_at_20"] / mean["rmse_at_40"] == pytest.approx(4, rel=0.1)


def test_errors_on_the_narrow_gaussians(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampler_errors, "NARROW", sampler_errors.Setting(NARROW.std, NARROW.kind, 80.0, 0.002, 300))
    monkeypatch.setattr(sampler_errors, "CALLS", (5, 10))
    ddim, f_dpm, heun = (sampler_errors.sampler_errors(name, 1) for name in ("ddim", "f_dpm", "heun"))
    # values of the specification, for 2 000 points
    assert (ddim["rmse_at_5"], ddim["rmse_at_10"]) == pytest.approx((0.346, 0.149), rel=0.1)
    assert (f_dpm["rmse_at_5"], f_dpm["rmse_at_10"]) == pytest.approx((0.121, 0.075), rel=0.15)
    assert (f_dpm["calls_at_5"], heun["calls_at_5"], heun["calls_at_10"]) == (5, 4, 10)
    again = sampler_errors.sampler_errors("ddim", 2)
    assert again["rmse_at_10"] != ddim["rmse_at_10"]


def record(variant: str, metric: str, seed: int, value: float) -> Record:
    return Record("digits", variant, metric, seed, value, 100, 1.0, 10)


def test_figures_show_means_over_seeds():
    records = [record("a", f"test/{{row}}/nfe_{n}/error", seed, n * seed) for n in (5, 8) for seed in (1, 3)]
    records += [record("a", "test/reference/error", seed, seed) for seed in (1, 3)]
    figure = calls_figure(
        records, {"a": "A", "b": "B"}, panels={"the error": "error"}, levels={"the error": "test/reference/error"}
    )
    line, level = figure.axes[0].lines
    assert np.allclose(line.get_xydata(), [[5, 10], [8, 16]])
    assert (line.get_label(), *np.unique(level.get_ydata())) == ("A", 2)
    (axes,) = error_figure([record("a", "rmse_at_5", seed, seed) for seed in (1, 3)], {"a": "A"}).axes
    assert np.allclose(axes.lines[0].get_xydata(), [[5, 2]])


def test_the_scatter_lies_on_the_falling_diagonal():
    panel = signed_error_figure([], {}).axes[-1]
    ddim, f_dpm = panel.lines[1].get_data()
    assert np.corrcoef(ddim, f_dpm)[0, 1] < -0.99
    assert len(ddim) == 400


def test_experiments_name_what_a_run_measures():
    from lightning_modules.f_dpm_solver.competitors import COMPETITORS

    experiments = load_experiments("f_dpm_solver")
    for experiment in experiments.values():
        assert set(experiment.titles) - {"mean"} <= set(COMPETITORS)
        if isinstance(experiment, Experiment):
            assert experiment.overrides["model.init_args.samplers"] == list(experiment.titles)
